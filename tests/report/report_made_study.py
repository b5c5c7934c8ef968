"""A study made by hand: baseline and winner launched three times more, two alike failures, one rule, one twin."""

from __future__ import annotations

import json
from typing import Any

import optuna
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from benchmark.results import Distribution, Level, Measurement, RequestSample
from engine.configuration import Configuration
from engine.failure import Failure
from engine.phase import Phase
from report.trial_facts import TrialFacts
from storage import Store

# 2026-11-30 22:00 UTC
BEGIN = 1796076000.0
LEVELS = (Level(1), Level(8))
_DISTRIBUTIONS = {
    "speculation": CategoricalDistribution(["off", "nextn"]),
    "steps": IntDistribution(1, 5),
    "script": CategoricalDistribution(["none", "<script>alert(1)</script>"]),
}


def make_study(store: Store, name: str, *, rehearsal: bool = False, trials: int = 0) -> optuna.Study:
    """The study, with ``trials`` more measured ones at its end."""
    study = optuna.create_study(study_name=name, storage=store.optuna_storage(), direction="maximize")
    environment = store.record_environment(
        {"accelerators": {"driver": "580.1", "gpus": [{"name": "RTX PRO 6000"}] * 2}, "versions": {"torch": "2.9.0"}}
    )
    space = {
        "engine": {
            "gpus": 2,
            "environment": {"NCCL_P2P_LEVEL": "SYS", "PYTHONPATH": "/opt/patches", "PRICE": "5$ a%h"},
        },
        "parameters": [{"name": one} for one in _DISTRIBUTIONS],
        "benchmark": {"levels": [{"concurrency": 1, "weight": 1.0}, {"concurrency": 8, "weight": 3.0}]},
    }
    store.record_search(name, space="nextn", space_yaml=json.dumps(space), model="org/model", rehearsal=rehearsal)
    made = _Made(store, study, environment, rehearsal)
    baseline, winner = made.configuration(), made.configuration(speculation="nextn", steps=3)
    first = made.launch(0, "baseline", baseline, {"c1": 100.0, "c8": 400.0})
    made.tell(0, "baseline", {"speculation": "off", "script": "none"}, 1.0, first, {"c1": 100.0, "c8": 400.0})
    second = made.launch(1, "trial", winner, {"c1": 130.0, "c8": 440.0}, acceptance=2.4)
    spoken = {"speculation": "nextn", "steps": 3, "script": "none"}
    made.tell(1, "speculation=nextn steps=3", spoken, 1.15, second, {"c1": 130.0, "c8": 440.0})
    for number in (2, 3):
        failure = Failure("TP1", "target graphs", f"CUDA ran out of memory (tried {number}.00 GiB)", "configuration",
                          "lower --mem-fraction-static", "torch.OutOfMemoryError: CUDA out of memory")  # fmt: skip
        made.launch(number, "trial", made.configuration(steps=number), {}, failure=failure)
        made.fail(number, f"steps={number}", {"speculation": "nextn", "steps": number, "script": "none"}, failure)
    odd = "script=<script>alert(1)</script>"
    third = made.launch(4, "trial", made.configuration(odd=1), {"c1": 90.0})
    made.tell(
        4, odd, {"speculation": "off", "script": "<script>alert(1)</script>"}, 0.9, third, {"c1": 90.0}, stopped=True
    )
    made.tell(5, "steps=3 twin", spoken, 1.15, second, {"c1": 130.0, "c8": 440.0}, reused_from=1)
    made.forbidden(6)
    for factor in (0.99, 1.0, 1.01):
        made.launch(0, "confirm", baseline, {"c1": 100.0 * factor, "c8": 400.0 * factor})
        made.launch(1, "confirm", winner, {"c1": 130.0 * factor, "c8": 440.0 * factor}, acceptance=2.4)
    for number in range(7, 7 + trials):
        rates = {"c1": 100.0 + number % 7, "c8": 400.0 + number % 11}
        launch_id = made.launch(number, "trial", made.configuration(extra=number), rates)
        params = {"speculation": "nextn", "steps": 1 + number % 5, "script": "none"}
        made.tell(number, f"extra={number}", params, 1.0 + number % 11 / 400, launch_id, rates)
    return study


class _Made:
    def __init__(self, store: Store, study: optuna.Study, environment: int, rehearsal: bool) -> None:
        self.store, self.study, self.environment, self.rehearsal = store, study, environment, rehearsal
        self.now = BEGIN

    def configuration(self, **flags: Any) -> Configuration:
        changed = {f"--speculative-{name}": value for name, value in flags.items()}
        return Configuration({"--model-path": "org/model", "--tp-size": 2, **changed}, {"NCCL_ALGO": "Ring it"})

    def launch(
        self,
        number: int,
        purpose: Any,
        configuration: Configuration,
        rates: dict[str, float],
        *,
        failure: Failure | None = None,
        acceptance: float | None = None,
    ) -> int:
        command = ["/opt/venv/bin/python", "-m", "sglang.launch_server", "--host", "127.0.0.1", "--port", "25670"]
        began = self.now
        launch_id = self.store.begin_launch(
            self.study.study_name, number, purpose, configuration, environment_id=self.environment,
            command=[*command, *configuration.arguments()], log_path=f"runs/trial-{number:04d}.log",
            rehearsal=self.rehearsal, started_at=began,
        )  # fmt: skip
        phases = [("imports", 2, 8), ("weights", 10, 10), ("target graphs", 20, 10), ("ready", 30, 0)]
        self.store.record_phases(
            launch_id,
            [
                Phase(rank, name, began + at, seconds, None, 20.0 - i if name == "ready" else None, None, True)
                for i, rank in enumerate(("TP0", "TP1"))
                for name, at, seconds in phases[: 3 if failure else 4]
            ],
        )
        self.now += 30
        if not failure:
            self.store.record_ready(launch_id, self.now)
            self.store.record_server_info(launch_id, {"version": "0.5.23", **dict(configuration.flags)})
        for level in LEVELS:
            if level.name in rates:
                self.store.record_measurement(launch_id, _measurement(level, rates[level.name], acceptance, self.now))
                self.now += 15
        self.store.record_teardown(launch_id, {"seconds": 4.0})
        self.now += 5  # one second of checks, four of teardown
        self.store.end_launch(launch_id, "failed" if failure else "measured", failure, self.now)
        self.now += 2
        return launch_id

    def tell(
        self, number: int, label: str, params: dict[str, Any], score: float, launch_id: int, rates: dict[str, float],
        *, stopped: bool = False, reused_from: int | None = None,
    ) -> None:  # fmt: skip
        facts = TrialFacts(
            label, f"{launch_id}", self.environment, is_baseline=number == 0, rehearsal=self.rehearsal,
            launch_id=launch_id, throughput=rates, stopped_early=stopped, reused_from=reused_from,
        )  # fmt: skip
        self._add(number, params, score, facts.attributes(), 0.0)

    def fail(self, number: int, label: str, params: dict[str, Any], failure: Failure) -> None:
        facts = TrialFacts(label, f"x{number}", self.environment, rehearsal=self.rehearsal,
                           failure=failure.sentence(), blame=failure.blame, remedy=failure.remedy)  # fmt: skip
        self._add(number, params, 0.9, facts.attributes(), 1.0)

    def forbidden(self, number: int) -> None:
        attributes = {"what": "steps=5", "failure": "not launched, a rule of the space forbids it: too many steps"}
        self._add(number, {"speculation": "nextn", "steps": 5, "script": "none"}, 0.9, attributes, 1.0)

    def _add(
        self, number: int, params: dict[str, Any], score: float, attributes: dict[str, Any], broken: float
    ) -> None:
        trial: FrozenTrial = create_trial(
            state=TrialState.COMPLETE,
            params=params,
            distributions={name: _DISTRIBUTIONS[name] for name in params},
            value=score,
            user_attrs=attributes,
            constraints={"feasible": broken},
        )
        self.study.add_trial(trial)


def _measurement(level: Level, rate: float, acceptance: float | None, began: float) -> Measurement:
    latency = 1000.0 * level.output_tokens * level.concurrency / rate
    samples = tuple(
        RequestSample(
            started_s=index // level.concurrency * latency / 1000,
            latency_ms=latency * (1 + 0.001 * (index % 3)),
            ttft_ms=50.0,
            prompt_tokens=10,
            output_tokens=level.output_tokens,
        )
        for index in range(level.requests)
    )
    times = Distribution(50.0, 50.0, 60.0, 70.0)
    return Measurement(
        level=level, started_at=began + 5, duration_s=10.0, completed=level.requests, failed=0, output_throughput=rate,
        request_throughput=rate / level.output_tokens, ttft_ms=times, itl_ms=times, tpot_ms=times, latency_ms=times,
        acceptance_length=acceptance, acceptance_rate=None, warm_up_s=5.0, steady=True, samples=samples,
        pcie_bytes_per_token=2.5e6,
    )  # fmt: skip
