"""Where a study stands: what runs now, what is best so far, what failed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from report.hours import lasting
from report.study_record import StudyRecord, phase_order
from report.trial_facts import REHEARSED
from storage.owner import this_host
from storage.records import UNFINISHED


@dataclass(frozen=True)
class RunningLaunch:
    """A launch that has not ended. ``alive`` is ``None`` on another host, where nobody can look."""

    trial: int | None
    label: str
    purpose: str
    phase: str
    since_s: float
    host: str
    alive: bool | None


@dataclass(frozen=True)
class Status:
    """A study now; ``quiet_s`` is the time since anything was recorded."""

    study: str
    rehearsal: bool
    trials: Mapping[str, int]
    failed: int
    launches: int
    running: tuple[RunningLaunch, ...]
    baseline: int | None
    winner: int | None
    winner_label: str | None
    score: float | None
    confirmed: str | None
    quiet_s: float | None


def status(record: StudyRecord, now: float | None = None) -> Status:
    """Where a study stands."""
    moment = time.time() if now is None else now
    running = []
    for launch in record.launches:
        if launch.outcome in UNFINISHED:
            phases = sorted(record.phases.get(launch.id, ()), key=lambda one: phase_order(one.name))
            levels = [one.measurement.level.name for one in record.measurements.get(launch.id, ())]
            phase = (
                f"measuring, done with {', '.join(levels)}" if levels
                else "serving" if launch.outcome == "ready"
                else phases[-1].name if phases
                else "starting"
            )  # fmt: skip
            label = record.label(launch.trial_number) if launch.trial_number is not None else launch.purpose
            alive = psutil.pid_exists(launch.owner_pid) if launch.host == this_host() else None
            running.append(RunningLaunch(launch.trial_number, label, launch.purpose, phase,
                                         moment - launch.started_at, launch.host, alive))  # fmt: skip
    times = [moment_ for launch in record.launches for moment_ in (launch.started_at, launch.ready_at, launch.ended_at)
             if moment_ is not None]  # fmt: skip
    return Status(
        study=record.name,
        rehearsal=record.rehearsal,
        trials=dict(Counter(trial.state.name.lower() for trial in record.trials)),
        failed=sum(row.score is None for row in record.standings),
        launches=len(record.launches),
        running=tuple(running),
        baseline=record.baseline.number if record.baseline else None,
        winner=record.winner.number if record.winner else None,
        winner_label=record.winner.facts.label if record.winner else None,
        score=record.winner.score if record.winner else None,
        confirmed=record.confirmed,
        quiet_s=max(moment - max(times), 0.0) if times else None,
    )


def as_text(found: Status) -> str:
    """For a terminal of 100 columns."""
    counts = ", ".join(f"{count} {state}" for state, count in found.trials.items()) or "none"
    lines = [f"{found.study}: trials {counts}; {found.launches} launches, {found.failed} configurations do not work"]
    if found.rehearsal:
        lines.append(REHEARSED)
    if found.winner is None:
        lines.append("Nothing was measured at every level so far.")
    elif found.winner == found.baseline:
        lines.append(f"Best so far: the baseline (trial {found.baseline}).")
    else:
        lines.append(f"Best so far: trial {found.winner} ({found.winner_label}), {found.score:.3f} of the baseline.")
    if found.confirmed:
        lines.append(f"Confirmed: {found.confirmed}")
    for one in found.running:
        name = "launch" if one.trial is None else f"trial {one.trial}"
        gone = "; its process is GONE" if one.alive is False else ""
        lines.append(f"Now: {name} ({one.label}), {one.phase}, for {lasting(one.since_s)} on {one.host}{gone}")
    if not found.running and found.quiet_s is not None:
        lines.append(f"Nothing runs; the last launch ended {lasting(found.quiet_s)} ago.")
    return "\n".join(lines) + "\n"
