"""The main job on the real SGLang: `quietlane tune cpu`, as `make tune` runs it, and Optuna Dashboard on its study."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import psutil
import pytest

from engine.ports import free_port
from engine.process_tree import LAUNCH_VARIABLE, environment_of
from report.trial_facts import TrialFacts, feasible
from storage import LaunchRecord, MeasurementRecord, Store

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Night:
    """What a search has left."""

    folder: Path
    said: str
    trials: list[optuna.trial.FrozenTrial]
    launches: tuple[LaunchRecord, ...]
    measurements: tuple[MeasurementRecord, ...]

    @property
    def url(self) -> str:
        return f"sqlite:///{self.folder}/study.db"

    def facts(self, number: int) -> TrialFacts:
        found = TrialFacts.of(self.trials[number])
        assert found is not None
        return found


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    folder = tmp_path_factory.mktemp("night")
    environment = dict(os.environ)
    environment.setdefault("QUIETLANE_CPU_ENGINE", str(ROOT / ".sglang-cpu" / "bin" / "python"))
    environment.setdefault("QUIETLANE_TINYMTP", str(ROOT / ".models" / "tinymtp"))
    environment["PREFECT_HOME"] = str(folder / "prefect")
    command = [str(BIN / "quietlane"), "tune", "cpu", "--trials", "5", "--storage", f"sqlite:///{folder}/study.db"]
    ran = subprocess.run(
        [*command, "--output", str(folder / "runs")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said[-4000:]
    with Store.open(f"sqlite:///{folder}/study.db") as store:
        study = optuna.load_study(study_name="cpu", storage=store.optuna_storage())
        yield Night(folder, said, study.get_trials(), store.launches("cpu"), store.measurements("cpu"))


def test_five_trials_are_told_with_and_without_speculation(night: Night) -> None:
    told = [trial for trial in night.trials if TrialFacts.of(trial)]
    assert len(told) == 5
    assert {trial.params["speculation"] for trial in told if feasible(trial)} == {"off", "nextn"}
    assert night.facts(0).is_baseline
    assert night.trials[0].value == pytest.approx(1.0)


def test_acceptance_length_is_in_the_study(night: Night) -> None:
    lengths = night.facts(1).acceptance
    assert set(lengths) == {"c1", "c4"}
    assert all(1.0 < length <= 4.0 for length in lengths.values())
    assert not night.facts(0).acceptance
    assert any("acceptance length c1" in trial.user_attrs for trial in night.trials)


def test_one_configuration_was_rejected_in_sglangs_own_words_without_a_launch(night: Night) -> None:
    (rejected,) = [launch for launch in night.launches if launch.outcome == "rejected"]
    assert rejected.failure is not None
    assert "candidate_steps" in rejected.failure.cause
    assert rejected.pid is None
    assert not feasible(night.trials[rejected.trial_number or 0])


def test_one_configuration_died_and_the_first_cause_is_named(night: Night) -> None:
    (died,) = [launch for launch in night.launches if launch.outcome == "failed"]
    assert died.failure is not None
    assert "too small to serve any requests" in died.failure.cause + died.failure.evidence
    assert died.failure.phase == "mamba and KV cache"
    assert died.failure.blame == "configuration"
    assert not feasible(night.trials[died.trial_number or 0])


def test_launches_and_measurements_are_whole(night: Night) -> None:
    measured = [launch for launch in night.launches if launch.outcome == "measured"]
    assert len(measured) == 3
    for launch in measured:
        assert launch.server_info is not None
        assert launch.server_info["version"] == "0.5.23"
        assert launch.teardown is not None
        assert launch.teardown["port_free"]
        assert not launch.rehearsal
    assert {one.measurement.level.name for one in night.measurements} == {"c1", "c4"}
    assert all(one.measurement.output_throughput > 0 and one.measurement.failed == 0 for one in night.measurements)


def test_leaderboard_report_and_winning_command_are_there(night: Night) -> None:
    runs = night.folder / "runs" / "cpu"
    assert "REHEARSAL" not in (runs / "leaderboard.md").read_text()
    assert "sglang.launch_server" in (runs / "winner.sh").read_text()
    assert "<html" in (runs / "report.html").read_text()
    assert "Launch command" in night.said


def test_nothing_is_left_running(night: Night) -> None:
    mine = str(night.folder)
    left = [
        process
        for process in psutil.process_iter()
        if LAUNCH_VARIABLE in environment_of(process.pid)
        and mine in environment_of(process.pid).get("PREFECT_HOME", "")
    ]
    assert not left


def test_optuna_dashboard_serves_the_study(night: Night) -> None:
    port = free_port()
    command = [str(BIN / "optuna-dashboard"), night.url, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/studies", timeout=5) as answer:
                    assert '"cpu"' in answer.read().decode()
                break
            except OSError:
                assert time.monotonic() < deadline, "the dashboard did not come up in a minute"
                time.sleep(0.5)
    finally:
        process.terminate()
        process.wait(20)
