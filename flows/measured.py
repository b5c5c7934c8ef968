"""One launch from start to teardown, measured at every level and recorded as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmark import crosscheck
from benchmark.load import measure
from benchmark.observers import Observer
from benchmark.prompt_source import PromptSource
from benchmark.results import Measurement
from engine.configuration import Configuration
from engine.failure import EngineFailed, Failure
from engine.launch import Engine, LaunchError
from engine.locks import HeldElsewhere
from engine.phase import Phase
from engine.ports import free_port
from flows.gate import check_acceptance, check_answers
from flows.live import LaunchView
from flows.opening import Search
from flows.voice import say
from storage import Outcome, Purpose

# A transient failure is worth two more tries, each after a longer pause (seconds).
_PAUSES = (2.0, 10.0)


@dataclass
class Measured:
    """What one launch gave."""

    launch_id: int
    measurements: list[Measurement] = field(default_factory=list)
    cross_checks: dict[str, dict[str, Any]] = field(default_factory=dict)
    server_info: dict[str, Any] = field(default_factory=dict)
    phases: tuple[Phase, ...] = ()
    stopped_early: bool = False

    @property
    def throughput(self) -> dict[str, float]:
        """Output tokens a second by level."""
        return {one.level.name: one.output_throughput for one in self.measurements}


@contextmanager
def _recorded(search: Search, launch_id: int, engine: Engine) -> Iterator[None]:
    """Start and end of one launch in the database, whatever ends it."""
    outcome: Outcome = "stopped"
    failure: Failure | None = None
    try:
        yield
        outcome = "measured"
    except EngineFailed as error:
        outcome, failure = "failed", error.failure
        raise
    finally:
        teardown = engine.stop()
        search.store.record_phases(launch_id, engine.phases)
        search.store.record_teardown(launch_id, teardown)
        search.store.end_launch(launch_id, outcome, failure)
        _keep_evidence(search, launch_id, engine)
        if teardown.failure is not None and teardown.failure.blame == "environment":
            search.broken = teardown.failure


def _keep_evidence(search: Search, launch_id: int, engine: Engine) -> None:
    """Stacks, GPU state and kernel log that were taken of a hanging engine, beside its log and with the study."""
    for name, text in engine.evidence.items():
        path = engine.log_path.with_suffix(f".{name.replace(' ', '-')}.txt")
        path.write_text(text)
        search.store.record_artifact(path, "evidence", study=search.study_name, launch_id=launch_id)


def launch_and_measure(
    search: Search,
    configuration: Configuration,
    *,
    purpose: Purpose,
    trial_number: int | None,
    resolved: dict[str, Any] | None = None,
    stop_early: bool = True,
) -> Measured:
    """Launch, measure every level, tear down; again after a transient failure.

    Raises EngineFailed with the last failure once the tries are used up or the failure is not transient.
    """
    for pause in (*_PAUSES, None):
        try:
            return _once(search, configuration, purpose, trial_number, resolved, stop_early)
        except EngineFailed as error:
            if error.failure.blame != "transient" or pause is None:
                raise
            say(f"{error.failure.sentence()}: transient, once more in {pause:g} s", warning=True)
            time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _log_path(search: Search, purpose: str, trial_number: int | None) -> Path:
    name = purpose if trial_number is None else f"trial-{trial_number:04d}"
    tries = len(list(search.folder.glob(f"{name}*.log")))
    return search.folder / (f"{name}.log" if not tries else f"{name}-{tries + 1}.log")


def _once(
    search: Search,
    configuration: Configuration,
    purpose: Purpose,
    trial_number: int | None,
    resolved: dict[str, Any] | None,
    stop_early: bool,
) -> Measured:
    port = search.parameters.port or free_port()
    log_path = _log_path(search, purpose, trial_number)
    engine = Engine(
        search.program,
        configuration,
        log_path=log_path,
        port=port,
        gpus=search.gpus,
        start_timeout_s=search.parameters.start_timeout_s,
        history=search.history,
        locks=None if search.rehearsal else search.locks,
    )
    launch_id = search.store.begin_launch(
        search.study_name,
        trial_number,
        purpose,
        configuration,
        resolved=resolved,
        environment_id=search.environment_id,
        command=engine.command,
        log_path=log_path,
        rehearsal=search.rehearsal,
    )
    measured = Measured(launch_id)
    with _recorded(search, launch_id, engine):
        _start(engine)
        if engine.pid is not None:
            search.store.record_process(launch_id, engine.pid)
        with LaunchView(log_path) as view:
            for progress in engine.starting():
                view.show(progress)
        measured.phases = engine.phases
        search.history.learn(engine.phases)
        measured.server_info = engine.server_info()
        search.store.record_ready(launch_id)
        search.store.record_server_info(launch_id, measured.server_info)
        check_answers(search, engine, measured.server_info, is_baseline=purpose == "baseline")
        _levels(search, engine, measured, stop_early)
    return measured


def _start(engine: Engine) -> None:
    """Start it; what keeps a command from being run at all is the machine's fault, since the space was checked."""
    try:
        engine.start()
    except (LaunchError, HeldElsewhere) as error:
        raise EngineFailed(
            Failure(None, "launch", str(error), "environment", "mend that and start the search again", "")
        ) from error


def _levels(search: Search, engine: Engine, measured: Measured, stop_early: bool) -> None:
    """Measure level after level; a configuration that cannot win any more is not measured to the end."""
    prompts = PromptSource(search.prompts, seed=search.plan.seed, levels=search.plan.levels)
    for level in search.plan.levels:
        # interconnect knows nothing of benchmark: its observer has the methods, not the class
        observers = () if search.traffic is None else (cast(Observer, search.traffic),)
        result = measure(engine.url, level, prompts, search.plan, engine.check, observers=observers)
        engine.check()
        search.store.record_measurement(measured.launch_id, result)
        measured.measurements.append(result)
        check_acceptance(result, measured.server_info)
        if result.completed == 0:
            reasons = sorted({sample.error for sample in result.samples if sample.error})
            raise EngineFailed(
                Failure(
                    None, "serving", f"no request of {level.name} completed ({'; '.join(reasons[:2])[:300]})",
                    "configuration", "look at the engine's log at the time of this level", "\n".join(reasons)[:4000],
                )
            )  # fmt: skip
        if search.parameters.cross_check and not stop_early:
            figures = crosscheck.run(
                search.program, engine.url, level, prompts, search.plan, engine.check, model=search.space.model.path
            )
            measured.cross_checks[level.name] = figures
            theirs = figures.get("output_throughput")
            said = f"{theirs:,.1f} tok/s by sglang.bench_serving" if theirs else figures.get("unavailable")
            say(f"  {level.name}: {result.output_throughput:,.1f} tok/s by quietlane, {said}")
        if stop_early and level is not search.plan.levels[-1] and search.board.hopeless(measured.throughput):
            measured.stopped_early = True
            return
