"""How the hours were spent: every second of a search goes to exactly one thing. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmark.results import Measurement
from engine.phase import Phase
from report.study_record import StudyRecord, phase_order
from storage import LaunchRecord

# In the order in which they are stacked.
PARTS = ("imports", "weights", "graphs", "benchmark", "teardown", "ours")
MEANING = {
    "imports": "process start, imports, joining of ranks",
    "weights": "weights and draft weights",
    "graphs": "caches, graphs, autotuning, the engine's warm-up",
    "benchmark": "warm-up and measurement at every level",
    "teardown": "until port and GPU memory were free",
    "ours": "checks, sampler, records, waiting",
}
_PART_OF = {
    "imports": "imports",
    "distributed init": "imports",
    "weights": "weights",
    "draft weights": "weights",
}
# Seconds without a launch that are a pause of the search, not work of ours.
PAUSE_S = 600.0


@dataclass(frozen=True)
class LaunchHours:
    """Seconds of one launch by part."""

    launch_id: int
    trial_number: int | None
    outcome: str
    seconds: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """From the launch to the end of its teardown."""
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Hours:
    """All launches of a study; ``seconds`` also holds what passed between them.

    ``paused_s`` (more than ten minutes without a launch) is in no part.
    """

    seconds: Mapping[str, float]
    launches: tuple[LaunchHours, ...]
    paused_s: float

    @property
    def total_s(self) -> float:
        """All parts together."""
        return sum(self.seconds.values())

    @property
    def failed_s(self) -> float:
        """Of launches whose configuration did not work."""
        return sum(one.total_s for one in self.launches if one.outcome in ("failed", "rejected", "wrong answers"))


def launch_hours(launch: LaunchRecord, phases: Sequence[Phase], measured: Sequence[Measurement]) -> LaunchHours:
    """One launch. A phase lasts, for the launch, from its first rank's begin until the next phase begins."""
    seconds = dict.fromkeys(PARTS, 0.0)
    end = launch.ended_at or launch.ready_at or launch.started_at
    teardown = min(float((launch.teardown or {}).get("seconds") or 0.0), max(end - launch.started_at, 0.0))
    seconds["teardown"] = teardown
    serving_until = end - teardown
    ready = min(launch.ready_at or serving_until, serving_until)
    begins: dict[str, float] = {}
    for phase in phases:
        if phase.started_at is not None:
            begins[phase.name] = min(phase.started_at, begins.get(phase.name, phase.started_at))
    part, since = "imports", launch.started_at
    for name in sorted(begins, key=lambda one: (begins[one], phase_order(one))):
        begin = min(max(begins[name], since), ready)
        seconds[part] += begin - since
        part, since = _PART_OF.get(name, "graphs"), begin
    seconds[part] += max(ready - since, 0.0)
    benchmark = min(sum(run.warm_up_s + run.duration_s for run in measured), max(serving_until - ready, 0.0))
    seconds["benchmark"] = benchmark
    seconds["ours"] = max(serving_until - ready - benchmark, 0.0)
    return LaunchHours(launch.id, launch.trial_number, launch.outcome, seconds)


def hours(record: StudyRecord) -> Hours:
    """A whole study, host by host."""
    spent = [
        launch_hours(
            launch, record.phases.get(launch.id, ()), [m.measurement for m in record.measurements.get(launch.id, ())]
        )
        for launch in record.launches
        if launch.ended_at is not None
    ]
    seconds = {part: sum(one.seconds[part] for one in spent) for part in PARTS}
    between, paused = _between(launch for launch in record.launches if launch.ended_at is not None)
    seconds["ours"] += between
    return Hours(seconds, tuple(spent), paused)


def _between(launches: Iterable[LaunchRecord]) -> tuple[float, float]:
    """Seconds between launches of one host: of work, and of pauses."""
    by_host: dict[str, list[LaunchRecord]] = defaultdict(list)
    for launch in launches:
        by_host[launch.host].append(launch)
    work = paused = 0.0
    for own in by_host.values():
        until = own[0].started_at
        for launch in sorted(own, key=lambda one: one.started_at):
            gap = max(launch.started_at - until, 0.0)
            if gap > PAUSE_S:
                paused += gap
            else:
                work += gap
            until = max(until, launch.ended_at or launch.started_at)
    return work, paused


def lasting(seconds: float) -> str:
    """A duration as people say it: ``42 s``, ``7 min 12 s``, ``8 h 04 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 9.5 or whole == seconds else f"{seconds:.1f} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
