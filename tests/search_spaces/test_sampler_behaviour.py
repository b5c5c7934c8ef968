"""What the sampler promises to whoever uses it through ask and tell."""

import subprocess
import sys
import time

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from search_spaces.sampler import QuietlaneSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggest(trial: optuna.trial.Trial) -> dict[str, object]:
    """A small conditional space: backends, a batch, speculation with steps of its own."""
    assignment: dict[str, object] = {
        "backend": trial.suggest_categorical("backend", ["cutlass", "triton", "marlin"]),
        "protocol": trial.suggest_categorical("protocol", ["unset", "LL", "Simple"]),
        "batch": trial.suggest_int("batch", 4, 64, log=True),
        "memory": trial.suggest_float("memory", 0.7, 0.95),
        "graphs": trial.suggest_categorical("graphs", [True, False]),
        "page": trial.suggest_categorical("page", [1, 16, 64]),
        "speculation": trial.suggest_categorical("speculation", ["off", "on"]),
    }
    if assignment["speculation"] == "on":
        assignment["steps"] = trial.suggest_int("steps", 1, 6)
    return assignment


def speed(assignment: dict[str, object]) -> float:
    value = {"cutlass": 100.0, "triton": 90.0, "marlin": 120.0}[str(assignment["backend"])]
    value *= {"unset": 1.0, "LL": 1.15, "Simple": 0.9}[str(assignment["protocol"])]
    value *= 1.1 if assignment["graphs"] else 1.0
    value *= {1: 0.95, 16: 1.05, 64: 1.0}[int(str(assignment["page"]))]
    if assignment["speculation"] == "on":
        value *= 1.5 - 0.06 * (float(str(assignment["steps"])) - 4) ** 2
    return value


def crashes(assignment: dict[str, object]) -> bool:
    return (assignment["backend"] == "triton" and assignment["graphs"] is True) or (
        float(str(assignment["memory"])) > 0.9 and float(str(assignment["batch"])) > 24
    )


def search(sampler: optuna.samplers.BaseSampler, launches: int, seed: int) -> tuple[optuna.Study, int]:
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rng = np.random.default_rng(seed)
    fallen = 0
    for _ in range(launches):
        trial = study.ask()
        assignment = suggest(trial)
        crashed = crashes(assignment)
        fallen += crashed
        trial.set_constraint("feasible", 1.0 if crashed else 0.0)
        study.tell(trial, 50.0 if crashed else speed(assignment) * float(np.exp(rng.normal(0, 0.02))))
    return study, fallen


def test_same_seed_and_history_give_the_same_proposals_in_another_process() -> None:
    program = (
        "import optuna; optuna.logging.set_verbosity(40)\n"
        "from search_spaces.sampler import QuietlaneSampler\n"
        "study = optuna.create_study(direction='maximize', sampler=QuietlaneSampler(seed=7))\n"
        "for n in range(6):\n"
        "    t = study.ask(); a = t.suggest_categorical('a', ['x', 'y', 'z']); b = t.suggest_float('b', 0, 1)\n"
        "    study.tell(t, 1 + b + (a == 'y'))\n"
        "print([t.params for t in study.trials])\n"
    )
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    assert "'a'" in runs[0].stdout


def test_resuming_with_a_new_sampler_of_the_same_seed_continues_the_same_way() -> None:
    first, _ = search(QuietlaneSampler(seed=3), 8, seed=3)
    through, _ = search(QuietlaneSampler(seed=3), 9, seed=3)
    first.sampler = QuietlaneSampler(seed=3)
    assert suggest(first.ask()) == through.trials[8].params


def test_beats_random_on_a_small_surface() -> None:
    ours, random = [], []
    for seed in range(3):
        study, _ = search(QuietlaneSampler(seed=seed), 22, seed)
        ours.append(speed(study.sampler.incumbent(study).params))  # type: ignore[attr-defined]
        study, _ = search(optuna.samplers.RandomSampler(seed=seed), 22, seed)
        random.append(max(speed(t.params) for t in study.get_trials() if t.constraints["feasible"] <= 0))
    assert np.mean(ours) > 1.05 * np.mean(random)
    assert min(ours) > 195  # of 239.1 at best


def test_learns_which_pair_of_values_crashes() -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=0))
    space = {
        "a": CategoricalDistribution(["x", "y", "z"]),
        "b": CategoricalDistribution(["p", "q"]),
        "c": CategoricalDistribution(["s", "t", "u", "v"]),
        "d": IntDistribution(0, 9),
    }
    rng = np.random.default_rng(0)
    for _ in range(25):  # told by hand: x with q crashes, though each alone is fine
        params = {
            "a": "xyz"[rng.integers(3)],
            "b": "pq"[rng.integers(2)],
            "c": "stuv"[rng.integers(4)],
            "d": int(rng.integers(10)),
        }
        bad = params["a"] == "x" and params["b"] == "q"
        trial = optuna.create_trial(
            params=params, distributions=space, value=100.0 + 20 * (params["a"] == "x") + 20 * (params["b"] == "q")
        )
        trial.set_constraint("feasible", float(bad))
        study.add_trial(trial)
    proposals = []
    for _ in range(6):
        trial = study.ask(space)
        proposals.append(trial.params)
        trial.set_constraint("feasible", 0.0)
        study.tell(trial, 120.0 + rng.normal())
    assert not any(p["a"] == "x" and p["b"] == "q" for p in proposals)
    assert any(p["a"] == "x" or p["b"] == "q" for p in proposals)


def test_failed_trials_say_nothing_about_the_configuration() -> None:
    def proposal(with_failures: bool) -> dict[str, object]:
        study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=1))
        space = {"a": CategoricalDistribution(["x", "y", "z"]), "b": FloatDistribution(0, 1)}
        for n in range(6):
            study.add_trial(
                optuna.create_trial(params={"a": "xyz"[n % 3], "b": n / 6}, distributions=space, value=1.0 + n)
            )
        for _ in range(4):
            if with_failures:
                study.add_trial(
                    optuna.create_trial(state=TrialState.FAIL, params={"a": "z", "b": 0.9}, distributions=space)
                )
            else:
                study.add_trial(optuna.create_trial(state=TrialState.FAIL))
        return study.ask(space).params

    assert proposal(True) == proposal(False)


def test_never_proposes_what_was_tried_while_something_is_left() -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=2))
    space = {"a": CategoricalDistribution(["x", "y", "z"]), "b": IntDistribution(1, 4)}
    seen = set()
    for n in range(12):
        trial = study.ask(space)
        seen.add(tuple(trial.params.values()))
        study.tell(trial, float(n % 5))
    assert len(seen) >= 11  # the first one is drawn before any history
    study.tell(study.ask(space), 1.0)  # an exhausted space repeats instead of raising


def test_running_trials_are_not_proposed_again() -> None:
    study, _ = search(QuietlaneSampler(seed=4), 6, seed=4)
    together = [suggest(study.ask()) for _ in range(4)]
    assert len({tuple(sorted(p.items(), key=str)) for p in together}) == 4


def test_a_branch_never_entered_gets_values_that_fit() -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=0))
    for n in range(3):
        study.enqueue_trial({"speculation": "off", "batch": 8 + n})
        trial = study.ask()
        study.tell(trial, speed(suggest(trial)))
    study.enqueue_trial({"speculation": "on"})
    trial = study.ask()
    assert 1 <= int(str(suggest(trial)["steps"])) <= 6


def test_enqueued_part_of_a_configuration_is_completed_around_it() -> None:
    study, _ = search(QuietlaneSampler(seed=5), 8, seed=5)
    study.enqueue_trial({"backend": "marlin", "page": 64})
    params = suggest(study.ask())
    assert (params["backend"], params["page"]) == ("marlin", 64)


def test_incumbent_is_not_the_luckiest_measurement() -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=0))
    space = {"a": CategoricalDistribution(["good", "bad"]), "b": IntDistribution(0, 3)}
    for b, value in enumerate([110.0, 109.5, 110.5, 110.2]):
        study.add_trial(optuna.create_trial(params={"a": "good", "b": b}, distributions=space, value=value))
    for value in (99.0, 100.0, 98.5, 100.5, 99.5, 111.0):  # one lucky among many repeats
        study.add_trial(optuna.create_trial(params={"a": "bad", "b": 1}, distributions=space, value=value))
    best = study.sampler.incumbent(study)  # type: ignore[attr-defined]
    assert best.params["a"] == "good"


def test_incumbent_ignores_crashes_and_is_none_before_anything_ran() -> None:
    sampler = QuietlaneSampler(seed=0)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    assert sampler.incumbent(study) is None
    space = {"a": IntDistribution(0, 9)}
    crashed = optuna.create_trial(params={"a": 1}, distributions=space, value=0.1)
    crashed.set_constraint("feasible", 1.0)
    study.add_trial(crashed)
    assert sampler.incumbent(study) is None
    for a in (2, 3, 4, 5):
        study.add_trial(optuna.create_trial(params={"a": a}, distributions=space, value=float(a)))
    best = sampler.incumbent(study)
    assert best is not None
    assert best.params["a"] == 2


def test_an_earlier_study_saves_launches() -> None:
    earlier, _ = search(QuietlaneSampler(seed=11), 25, seed=11)
    shifted = [
        optuna.trial.create_trial(params=t.params, distributions=t.distributions, value=t.value * 0.8)
        for t in earlier.trials
        if t.constraints["feasible"] <= 0
    ]  # type: ignore[operator]
    fresh, informed = QuietlaneSampler(seed=6), QuietlaneSampler(seed=6, prior_trials=shifted)
    worth = []
    for sampler in (fresh, informed):
        study, _ = search(sampler, 6, seed=6)
        best = sampler.incumbent(study)
        worth.append(0.0 if best is None else speed(best.params))
    assert worth[1] >= worth[0]
    assert worth[1] > 200


@pytest.mark.parametrize("directions", [["minimize", "maximize"], ["maximize", "maximize"]])
def test_several_objectives_are_blended(directions: list[str]) -> None:
    sampler = QuietlaneSampler(seed=0)
    study = optuna.create_study(directions=directions, sampler=sampler)
    for _ in range(6):
        trial = study.ask()
        x = trial.suggest_float("x", 0, 1)
        study.tell(trial, [x, 1 - x])
    assert sampler.incumbent(study) is not None


def test_answers_in_time_with_500_trials_of_25_parameters() -> None:
    sampler = QuietlaneSampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space: dict[str, optuna.distributions.BaseDistribution] = {}
    for n in range(25):
        kinds = (CategoricalDistribution(list("abcde")), IntDistribution(1, 64, log=True), FloatDistribution(0, 1))
        space[f"p{n}"] = kinds[n % 3]
    rng = np.random.default_rng(0)
    draw = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = []
    for _ in range(500):
        params = draw.ask(space).params
        trial = optuna.create_trial(params=params, distributions=space, value=float(np.exp(rng.normal())))
        trial.set_constraint("feasible", float(rng.uniform() < 0.3))
        trials.append(trial)
    study.add_trials(trials)
    began = time.process_time()
    study.ask(space)
    assert time.process_time() - began < 2.0
