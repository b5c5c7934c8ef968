"""What is refused with the real engine at hand: before a launch, in one sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import flows.tune as tuning
from engine.locks import LOCKS_VARIABLE, GpuLocks
from flows.parameters import TuneParameters
from flows.refused import Refused

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The CPU engine and model that `make engine` made, and locks of this test's own."""
    monkeypatch.setenv(
        "QUIETLANE_CPU_ENGINE", os.environ.get("QUIETLANE_CPU_ENGINE", str(ROOT / ".sglang-cpu" / "bin" / "python"))
    )
    monkeypatch.setenv("QUIETLANE_TINYMTP", os.environ.get("QUIETLANE_TINYMTP", str(ROOT / ".models" / "tinymtp")))
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))


def refusal(tmp_path: Path, space: str) -> str:
    parameters = TuneParameters(space=space, storage=f"sqlite:///{tmp_path}/study.db", output=tmp_path / "runs")
    with pytest.raises(Refused) as refused:
        tuning.tune.fn(parameters)
    sentence = str(refused.value)
    assert "\n" not in sentence.strip()
    assert not list(tmp_path.rglob("*.log"))
    return sentence


def test_a_second_search_on_the_same_machine_is_refused_with_the_first_ones_pid(tmp_path: Path) -> None:
    with GpuLocks(()):
        assert f"pid {os.getpid()}" in refusal(tmp_path, "cpu")


def test_a_flag_that_the_installed_engine_does_not_know_is_refused(tmp_path: Path) -> None:
    shipped = (ROOT / "search_spaces" / "spaces" / "cpu.yaml").read_text()
    assert "--schedule-policy" in shipped
    space = tmp_path / "own.yaml"
    space.write_text(shipped.replace("--schedule-policy", "--enable-pcie-oneshot-allreduce"))
    assert "--enable-pcie-oneshot-allreduce" in refusal(tmp_path, str(space))
