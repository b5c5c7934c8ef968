"""The shipped spaces against the real SGLang 0.5.23 on the CPU: it knows their flags and decides as their notes say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.samplers import RandomSampler

import search_spaces
from engine.cpu.small_model import unpack
from engine.preflight import Preflight
from engine.program import Program
from search_spaces import Space

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def space() -> Iterator[Space]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUIETLANE_TINYMTP", str(unpack()))
        if "QUIETLANE_CPU_ENGINE" not in os.environ:
            patch.setenv("QUIETLANE_CPU_ENGINE", str(ROOT / ".sglang-cpu" / "bin" / "python"))
        yield search_spaces.load("cpu")


@pytest.fixture(scope="module")
def preflight(space: Space) -> Iterator[Preflight]:
    if not Path(space.engine.argv[0]).exists():
        pytest.fail(f"the real SGLang for the CPU is not at {space.engine.argv[0]}; install it with `make engine`")
    program = Program(space.engine.argv, space.engine.base_environment)
    # imports take some seconds, and minutes where the machine is busy
    with Preflight(program, start_timeout_s=600, check_timeout_s=120) as started:
        yield started


@pytest.mark.parametrize("name", ["cpu", "nextn"])
def test_sglang_knows_every_flag_of_a_space(name: str, preflight: Preflight) -> None:
    space = search_spaces.load(name)
    flags = {*space.engine.flags, *(derived.flag for derived in space.derived if derived.flag)}
    flags |= {target for parameter in space.parameters for target in parameter.targets() if target.startswith("--")}
    assert flags <= preflight.known_flags()


def test_sglang_rejects_the_configuration_that_is_there_to_be_rejected_and_no_other(
    space: Space, preflight: Preflight
) -> None:
    assert preflight.check(space.baseline()).accepted
    rejected = {one.name: preflight.check(space.configuration(values)) for one, values in space.enqueued()}
    rejected = {name: answer for name, answer in rejected.items() if not answer.accepted}
    assert list(rejected) == ["adaptive from two steps"]
    assert "is not in the adaptive config candidate_steps" in str(rejected["adaptive from two steps"].rejection)


def test_random_trials_are_rejected_for_no_other_reason(space: Space, preflight: Preflight) -> None:
    study = optuna.create_study(sampler=RandomSampler(seed=5))
    for _ in range(25):
        assignment = space.suggest(study.ask())
        answer = preflight.check(space.configuration(assignment))
        known = assignment.get("adaptive") is True and assignment["topk"] == 1 and assignment["steps"] in (2, 4)
        assert answer.accepted != known, (assignment, answer.rejection)
