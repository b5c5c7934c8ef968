"""Whatever a history holds, the sampler answers with values that fit."""

import math
from typing import Any

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from search_spaces.sampler import QuietlaneSampler

optuna.logging.set_verbosity(optuna.logging.ERROR)

SPACE: dict[str, BaseDistribution] = {
    "choice": CategoricalDistribution(["a", "b", None, 3]),
    "flag": CategoricalDistribution([True, False]),
    "sizes": CategoricalDistribution(["unset", 4, 8, 16]),
    "log": FloatDistribution(1e-6, 10.0, log=True),
    "grid": FloatDistribution(0.0, 1.0, step=0.25),
    "stepped": IntDistribution(0, 1000, step=50),
    "wide": IntDistribution(1, 100000, log=True),
    "many": CategoricalDistribution([f"c{n}" for n in range(300)]),
    "only": CategoricalDistribution(["one"]),
}


@st.composite
def trials(draw: st.DrawFn) -> optuna.trial.FrozenTrial:
    names = draw(st.sets(st.sampled_from(sorted(SPACE))))
    params: dict[str, Any] = {}
    for name in sorted(names):
        one = SPACE[name]
        if isinstance(one, CategoricalDistribution):
            params[name] = draw(st.sampled_from(one.choices))
        elif isinstance(one, IntDistribution):
            params[name] = one.low + one.step * draw(st.integers(0, (one.high - one.low) // one.step))
        elif one.step is not None:
            params[name] = one.low + one.step * draw(st.integers(0, 4))
        else:
            params[name] = draw(st.floats(one.low, one.high))
    state = draw(
        st.sampled_from(
            [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL, TrialState.PRUNED, TrialState.RUNNING]
        )
    )
    value = draw(
        st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, math.inf, -math.inf, 1e300, -1e300, 1e-300]))
    )
    trial = optuna.create_trial(
        state=state,
        params=params,
        distributions={name: SPACE[name] for name in params},
        value=value if state == TrialState.COMPLETE else None,
    )
    if draw(st.booleans()):
        trial.set_constraint("feasible", draw(st.sampled_from([0.0, 1.0, -1.0])))
    return trial


@given(st.lists(trials(), max_size=8), st.sampled_from(["maximize", "minimize"]), st.integers(0, 3))
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_any_history_gets_a_proposal_that_fits(
    history: list[optuna.trial.FrozenTrial], direction: str, seed: int
) -> None:
    sampler = QuietlaneSampler(seed=seed)
    study = optuna.create_study(direction=direction, sampler=sampler)
    study.add_trials(history)
    params = study.ask(SPACE).params
    assert set(params) == set(SPACE)
    for name, one in SPACE.items():
        assert one._contains(one.to_internal_repr(params[name]))
    best = sampler.incumbent(study)
    assert best is None or best.state == TrialState.COMPLETE


@pytest.mark.parametrize("value", [0.0, -3.5, 1e9])
def test_constant_values_are_no_obstacle(value: float) -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=0))
    for _ in range(6):
        trial = study.ask({"x": FloatDistribution(0, 1), "y": CategoricalDistribution(["a", "b"])})
        study.tell(trial, value)
    assert len(study.trials) == 6


def test_when_everything_crashed_it_looks_elsewhere() -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=0))
    space = {"a": CategoricalDistribution(["bad", "good"]), "b": IntDistribution(0, 9)}
    for b in range(6):
        crashed = optuna.create_trial(params={"a": "bad", "b": b}, distributions=space, value=0.0)
        crashed.set_constraint("feasible", 1.0)
        study.add_trial(crashed)
    assert study.ask(space).params["a"] == "good"


def test_nan_told_as_a_value_is_ignored() -> None:
    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=0))
    for n in range(5):
        trial = study.ask({"x": FloatDistribution(0, 1)})
        study.tell(trial, math.nan if n == 2 else 1.0, state=None, skip_if_finished=True)
    assert study.sampler.incumbent(study) is not None  # type: ignore[attr-defined]
