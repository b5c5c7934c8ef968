"""The spaces that come with quietlane: whole, obeying their own rules, and valid wherever a search may look."""

from __future__ import annotations

from importlib import resources

import optuna
import pytest
from optuna.samplers import RandomSampler

import search_spaces
from benchmark.plan import Plan
from engine.program import Program
from search_spaces import Space

SHIPPED = search_spaces.shipped()


@pytest.fixture(params=SHIPPED)
def space(request: pytest.FixtureRequest) -> Space:
    return search_spaces.load(request.param)


def random_assignments(space: Space, count: int) -> list[tuple[optuna.Trial, search_spaces.Assignment]]:
    study = optuna.create_study(sampler=RandomSampler(seed=7))
    trials = [study.ask() for _ in range(count)]
    return [(trial, space.suggest(trial)) for trial in trials]


def test_three_spaces_are_shipped() -> None:
    assert SHIPPED == ("cpu", "nextn", "nextn-h200")


def test_a_shipped_space_is_called_as_its_file(space: Space) -> None:
    assert search_spaces.load(space.name) == space


def test_the_baseline_speculates_not(space: Space) -> None:
    assert space.baseline_assignment()["speculation"] == "off"
    assert "--speculative-algorithm" not in space.baseline().flags
    assert space.label(space.baseline_assignment()) == "baseline"


def test_every_enqueued_configuration_obeys_the_rules_and_differs_from_the_others(space: Space) -> None:
    configurations = [space.configuration(assignment) for _, assignment in space.enqueued()]
    assert all(space.broken_rule(assignment) is None for _, assignment in space.enqueued())
    assert len({space.baseline(), *configurations}) == 1 + len(configurations)


def test_every_random_trial_gives_a_whole_configuration(space: Space) -> None:
    for trial, assignment in random_assignments(space, 150):
        assert trial.params == assignment
        assert space.complete(assignment) == assignment
        configuration = space.configuration(assignment)
        assert configuration.flags["--model-path"] == space.model.path
        speculates = assignment["speculation"] == "nextn"
        assert ("--speculative-num-draft-tokens" in configuration.flags) == speculates
        space.broken_rule(assignment)
        assert space.label(assignment)


def test_a_parameter_has_one_distribution_in_all_trials(space: Space) -> None:
    for trial, _ in random_assignments(space, 60):
        for name, distribution in trial.distributions.items():
            assert distribution == space.parameter(name).distribution()


def test_what_is_enqueued_is_what_is_suggested(space: Space) -> None:
    study = optuna.create_study(sampler=RandomSampler(seed=1))
    for _, assignment in space.enqueued():
        study.enqueue_trial(space.fixed(assignment))
    for _, assignment in space.enqueued():
        assert space.suggest(study.ask()) == assignment


def test_every_parameter_can_be_active_and_changes_the_configuration(space: Space) -> None:
    seen: dict[str, set[str]] = {parameter.name: set() for parameter in space.parameters}
    for _, assignment in random_assignments(space, 200):
        for name, value in assignment.items():
            seen[name].add(str(value))
    assert all(len(values) > 1 for values in seen.values())


def test_the_benchmark_section_is_a_plan(space: Space) -> None:
    plan = Plan.model_validate(space.benchmark.plan())
    assert [level.concurrency for level in plan.levels] == [level.concurrency for level in space.benchmark.levels]
    assert plan.temperature > 0  # greedy text flatters speculation


def test_the_engine_section_is_a_program(space: Space) -> None:
    program = Program(space.engine.argv, space.engine.base_environment)
    argv = program.argv(space.baseline(), 4242)
    assert argv[0] == space.engine.interpreter
    assert argv[1:3] == ["-m", "sglang.launch_server"]


def test_no_path_of_one_machine_is_in_a_shipped_space() -> None:
    for name in SHIPPED:
        written = (resources.files("search_spaces") / "spaces" / f"{name}.yaml").read_text(encoding="utf-8")
        assert not any(place in written for place in ("/work/", "/root/", "/home/"))


def test_draft_tokens_follow_from_steps_and_branches() -> None:
    space = search_spaces.load("cpu")
    tokens = {
        (steps, topk): space.configuration({"speculation": "nextn", "steps": steps, "topk": topk}).flags[
            "--speculative-num-draft-tokens"
        ]
        for steps in (1, 3)
        for topk in (1, 2)
    }
    assert tokens == {(1, 1): 2, (1, 2): 2, (3, 1): 4, (3, 2): 6}


def test_the_pair_of_gpus_never_uses_multicast() -> None:
    environment = search_spaces.load("nextn-h200").engine.base_environment
    assert environment["NCCL_NVLS_ENABLE"] == "0"
    assert environment["TORCH_SYMM_MEM_DISABLE_MULTICAST"] == "1"
    assert environment["NVSHMEM_DISABLE_NVLS"] == "1"


def test_eight_gpus_are_used_by_every_arm() -> None:
    space = search_spaces.load("nextn")
    for arm in space.parameter("parallelism").choices:
        flags = space.configuration({"parallelism": arm}).flags
        width = [flags.get(name, 1) for name in ("--tp-size", "--dp-size", "--pp-size")]
        assert int(str(width[0])) * int(str(width[1])) * int(str(width[2])) == space.engine.gpus
