"""As a team uses it: a Prefect server, the deployments of prefect.yaml, a worker, and `prefect deployment run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest

from engine.ports import free_port
from report.trial_facts import TrialFacts
from storage import Store

ROOT = Path(__file__).resolve().parents[2]
PREFECT = str(Path(sys.executable).with_name("prefect"))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Server:
    """A running Prefect server and the environment that talks to it."""

    url: str
    environment: dict[str, str]

    def prefect(self, *arguments: str) -> str:
        command = [PREFECT, "--no-prompt", *arguments]
        ran = subprocess.run(
            command, env=self.environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def flow_runs(self) -> list[dict[str, object]]:
        return self._filter("flow_runs")

    def task_runs(self) -> list[dict[str, object]]:
        return self._filter("task_runs")

    def artifacts(self) -> list[dict[str, object]]:
        return self._filter("artifacts")

    def _filter(self, what: str) -> list[dict[str, object]]:
        request = urllib.request.Request(
            f"{self.url}/{what}/filter", data=b"{}", headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            found: list[dict[str, object]] = json.load(answer)
        return found


def end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("prefect")
    port = free_port()
    environment = {
        **os.environ,
        "PREFECT_HOME": str(home),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    log = (home / "server.log").open("wb")
    process = subprocess.Popen(
        [PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        env=environment, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}/api"
    try:
        deadline = time.monotonic() + 180
        while not answers(f"{url}/health"):
            assert process.poll() is None, (home / "server.log").read_text()
            assert time.monotonic() < deadline, "the Prefect server did not come up in three minutes"
            time.sleep(0.5)
        yield Server(url, environment)
    finally:
        end(process)


@pytest.fixture(scope="module")
def deployed(server: Server) -> Server:
    for pool in ("gpu-host", "cpu-host"):
        server.prefect("work-pool", "create", pool, "--type", "process")
    said = server.prefect("deploy", "--all")
    for name in ("tune/nextn", "tune/nextn-overnight", "tune/cpu", "confirm/finalists", "probe/interconnect"):
        assert name in said
    return server


def test_the_overnight_deployment_is_off_until_it_is_switched_on(deployed: Server) -> None:
    inspected = json.loads(deployed.prefect("deployment", "inspect", "tune/nextn-overnight", "--output", "json"))
    (schedule,) = inspected["schedules"]
    assert schedule["active"] is False
    assert schedule["schedule"]["timezone"] == "Europe/Berlin"


def test_bad_parameters_are_refused_by_the_server(deployed: Server) -> None:
    wrong = 'parameters={"space": "cpu", "trials": 0}'
    ran = subprocess.run(
        [PREFECT, "--no-prompt", "deployment", "run", "tune/cpu", "--param", wrong],
        env=deployed.environment, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    assert "trials" in ran.stdout + ran.stderr or "Validation" in ran.stdout + ran.stderr


def test_a_worker_runs_a_deployment_to_its_end(deployed: Server, tmp_path: Path) -> None:
    parameters = {
        "space": "cpu",
        "engine": "rehearsal",
        "trials": 2,
        "storage": f"sqlite:///{tmp_path}/study.db",
        "output": str(tmp_path / "runs"),
    }
    log = (tmp_path / "worker.log").open("wb")
    worker = subprocess.Popen(
        [PREFECT, "worker", "start", "--pool", "cpu-host", "--type", "process"],
        env=deployed.environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True,
    )  # fmt: skip
    try:
        deployed.prefect("deployment", "run", "tune/cpu", "--param", f"parameters={json.dumps(parameters)}")
        deadline = time.monotonic() + 240
        while True:
            (run,) = deployed.flow_runs()
            if run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"):
                break
            assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()[-4000:]
            time.sleep(1)
    finally:
        end(worker)

    assert run["state_type"] == "COMPLETED", (tmp_path / "worker.log").read_text()[-4000:]
    names = sorted(str(task["name"]) for task in deployed.task_runs())
    assert len(names) == 2
    assert names[0] == "0 baseline"
    assert names[1].startswith("1 speculation=nextn")
    assert "leaderboard" in {artifact["key"] for artifact in deployed.artifacts()}
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        study = optuna.load_study(study_name="cpu-rehearsal", storage=store.optuna_storage())
        told = [TrialFacts.of(trial) for trial in study.trials[:2]]
    assert all(facts is not None and facts.rehearsal for facts in told)
