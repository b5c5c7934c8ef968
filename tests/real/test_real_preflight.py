"""The preflight against the real SGLang 0.5.23 on the CPU: what it decides, and when two configurations are one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from engine.configuration import Configuration
from engine.cpu.program import cpu_program
from engine.cpu.small_model import unpack
from engine.preflight import Preflight

ROOT = Path(__file__).resolve().parents[2]
# Written for this test and for benchmarks/preflight_agreement.py, which launches every one of them for real.
TABLE = yaml.safe_load((ROOT / "benchmarks" / "preflight_configurations.yaml").read_text())
CASES = {entry["name"]: entry for entry in TABLE["configurations"]}

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def preflight() -> Iterator[Preflight]:
    named = os.environ.get("QUIETLANE_CPU_ENGINE")
    python = Path(named) if named else ROOT / ".sglang-cpu" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"the real SGLang for the CPU is not at {python}; install it with `make engine`")
    # imports take some seconds, and minutes where the machine is busy
    with Preflight(cpu_program(python), start_timeout_s=600, check_timeout_s=120) as started:
        assert started.version == "0.5.23"
        yield started


@pytest.fixture(scope="module")
def model() -> str:
    return str(unpack())


def configuration(name: str, model: str) -> Configuration:
    entry = CASES[name]
    speculation: dict[str, Any] = TABLE["speculation"] if entry.get("speculation") else {}
    return Configuration({"--model-path": model, **TABLE["base"], **speculation, **entry.get("flags", {})})


def test_there_are_at_least_forty_configurations_accepted_and_rejected_ones() -> None:
    rejected = [name for name, entry in CASES.items() if "rejected" in entry]
    assert len(CASES) >= 40
    assert len(rejected) >= 15
    assert len(CASES) - len(rejected) >= 15


@pytest.mark.parametrize("name", CASES)
def test_sglang_decides_as_known(name: str, preflight: Preflight, model: str) -> None:
    answer = preflight.check(configuration(name, model))
    assert answer.warnings == ()
    words = CASES[name].get("rejected")
    if words is None:
        assert answer.rejection is None
        assert answer.resolved is not None
        assert answer.resolved["model_path"] == model
    else:
        assert answer.rejection is not None
        assert words in answer.rejection


def test_configurations_that_sglang_makes_one_are_one(preflight: Preflight, model: str) -> None:
    names = ("NEXTN", "EAGLE is NEXTN", "draft tokens follow the steps at topk 1", "steps left to SGLang")
    identities = {preflight.check(configuration(name, model)).identity for name in names}
    assert len(identities) == 1
    assert preflight.check(configuration("one step", model)).identity not in identities
    assert preflight.check(configuration("plain", model)).identity not in identities


def test_a_backend_named_for_both_phases_is_the_backend(preflight: Preflight, model: str) -> None:
    plain = configuration("plain", model)
    both = plain.with_changes(
        {"--prefill-attention-backend": "torch_native", "--decode-attention-backend": "torch_native"}
    )
    assert preflight.check(plain).identity == preflight.check(both).identity


def test_ports_are_no_part_of_the_identity_and_the_environment_is(preflight: Preflight, model: str) -> None:
    plain = configuration("plain", model)
    moved = plain.with_changes({"--port": 31999, "--nccl-port": 31998})
    other = plain.with_changes(environment={"NCCL_PROTO": "LL"})
    assert preflight.check(plain).identity == preflight.check(moved).identity != preflight.check(other).identity


def test_silent_rewrites_are_seen(preflight: Preflight, model: str) -> None:
    resolved = preflight.check(configuration("running requests left to SGLang", model)).resolved
    assert resolved is not None
    assert resolved["max_running_requests"] == 48
    assert resolved["speculative_algorithm"] == "EAGLE"


def test_a_variable_that_this_version_does_not_know_is_warned_of(preflight: Preflight, model: str) -> None:
    names = ("SGLANG_SPEC_TP_SYNCH", "SGLANG_SPEC_TP_SYNC", "SGLANG_USE_CPU_ENGINE", "NCCL_PROTO")
    answer = preflight.check(
        configuration("plain", model).with_changes(
            environment={**dict.fromkeys(names, "1"), "SGLANG_SPEC_TP_SYNC": "all"}
        )
    )
    assert answer.accepted
    assert answer.warnings == (
        "SGLang 0.5.23 knows no variable SGLANG_SPEC_TP_SYNCH: did you mean SGLANG_SPEC_TP_SYNC?",
    )


def test_the_flags_of_the_installed_version_are_known(preflight: Preflight) -> None:
    flags = preflight.known_flags()
    assert {"--speculative-algorithm", "--tp-size", "--model", "--cuda-graph-max-bs-decode"} <= flags
    assert "--cuda-graph-max-bs" not in flags
    assert len(flags) > 500


def test_a_check_costs_less_than_half_a_second_of_a_core(preflight: Preflight, model: str) -> None:
    preflight.check(configuration("NEXTN", model))
    assert preflight._process is not None
    helper = psutil.Process(preflight._process.pid)

    def cost() -> float:
        times = helper.cpu_times()
        return times.user + times.system + times.children_user + times.children_system

    before, rounds = cost(), 5
    for steps in range(1, rounds + 1):
        preflight.check(configuration("NEXTN", model).with_changes({"--speculative-num-steps": steps}))
    assert (cost() - before) / rounds < 0.5
