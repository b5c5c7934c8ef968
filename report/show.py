"""Everything about one trial: what it was launched with, how it started, what it measured, what came of it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.phase import Phase
from report.failure_groups import failure_of
from report.hours import PARTS, lasting, launch_hours
from report.level_figures import LevelFigures, figures_of
from report.study_record import StudyRecord, phase_order
from report.trial_facts import REHEARSED
from report.trust import flat


@dataclass(frozen=True)
class ShownPhase:
    """One phase over all ranks: the slowest rank's seconds, the least memory left."""

    name: str
    seconds: float | None
    slowest_rank: str
    memory_left_gb: float | None


@dataclass(frozen=True)
class ShownLaunch:
    """One start of the engine."""

    id: int
    purpose: str
    outcome: str
    started_at: str
    start_s: float | None
    total_s: float | None
    parts_s: Mapping[str, float]
    log_path: str | None
    host: str


@dataclass(frozen=True)
class Shown:
    """One trial.

    Attributes:
        score: 1.0 is the baseline; an upper bound where ``score_is_bound``.
        settings: what differs from the baseline's command line, to (here, baseline's).
        resolved: what differs from the baseline in the engine's own words once it ran, likewise.
    """

    study: str
    number: int
    state: str
    label: str
    rehearsal: bool
    is_baseline: bool
    is_winner: bool
    score: float | None
    score_is_bound: bool
    outcome: str
    failure: str | None
    blame: str | None
    remedy: str | None
    reused_from: int | None
    note: str | None
    parameters: Mapping[str, Any]
    settings: Mapping[str, tuple[Any, Any]]
    resolved: Mapping[str, tuple[Any, Any]]
    command: str
    environment: Mapping[str, str]
    versions: Mapping[str, str]
    phases: tuple[ShownPhase, ...]
    levels: tuple[LevelFigures, ...]
    launches: tuple[ShownLaunch, ...]
    artifacts: tuple[str, ...]


def show(record: StudyRecord, number: int, artifacts: Sequence[str] = ()) -> Shown:
    """One trial of any state. Raises ReportError for a number that is not there."""
    trial, facts, row = record.trial(number), record.facts(number), record.standing(number)
    launch = record.main_launch(number)
    baseline = record.main_launch(record.baseline.number) if record.baseline else None
    failure = failure_of(record, number)
    settings: Mapping[str, tuple[Any, Any]] = {}
    resolved: Mapping[str, tuple[Any, Any]] = {}
    if launch and baseline and launch.id != baseline.id:
        settings = launch.configuration.differences(baseline.configuration)
        resolved = differing(launch.server_info or launch.resolved, baseline.server_info or baseline.resolved)
    return Shown(
        study=record.name,
        number=number,
        state=trial.state.name.lower(),
        label=record.label(number),
        rehearsal=bool((facts and facts.rehearsal) or (launch and launch.rehearsal)),
        is_baseline=bool(facts and facts.is_baseline),
        is_winner=bool(record.winner and record.winner.number == number),
        score=row.score if row else None,
        score_is_bound=bool(facts and facts.stopped_early),
        outcome=row.outcome if row else (f"{failure.blame}: {failure.cause}" if failure else trial.state.name.lower()),
        failure=failure.sentence().lstrip(": ") if failure else None,
        blame=failure.blame if failure else None,
        remedy=failure.remedy or None if failure else None,
        reused_from=facts.reused_from if facts else None,
        note=trial.user_attrs.get("note"),
        parameters=dict(trial.params),
        settings=settings,
        resolved=resolved,
        command=shlex.join(launch.command) if launch else "",
        environment={**record.base_environment, **launch.configuration.environment} if launch else {},
        versions=record.versions(launch) if launch else {},
        phases=shown_phases(record.phases.get(launch.id, ())) if launch else (),
        levels=tuple(figures_of(record, number).values()),
        launches=tuple(_launch(record, one.id) for one in record.launches_of(number)),
        artifacts=tuple(artifacts),
    )


def _launch(record: StudyRecord, launch_id: int) -> ShownLaunch:
    launch = next(one for one in record.launches if one.id == launch_id)
    measured = [one.measurement for one in record.measurements.get(launch_id, ())]
    parts = launch_hours(launch, record.phases.get(launch_id, ()), measured).seconds if launch.ended_at else {}
    return ShownLaunch(
        id=launch.id,
        purpose=launch.purpose,
        outcome=launch.outcome,
        started_at=datetime.fromtimestamp(launch.started_at).astimezone().isoformat(timespec="seconds"),
        start_s=launch.ready_at - launch.started_at if launch.ready_at else None,
        total_s=launch.ended_at - launch.started_at if launch.ended_at else None,
        parts_s=parts,
        log_path=str(launch.log_path) if launch.log_path else None,
        host=launch.host,
    )


def shown_phases(phases: Sequence[Phase]) -> tuple[ShownPhase, ...]:
    """Each phase once, in the order of a start."""
    by_name: dict[str, list[Phase]] = {}
    for phase in phases:
        by_name.setdefault(phase.name, []).append(phase)
    found = []
    for name in sorted(by_name, key=phase_order):
        slowest = max(by_name[name], key=lambda one: one.elapsed_s or 0.0)
        left = [one.memory_left_gb for one in by_name[name] if one.memory_left_gb is not None]
        found.append(ShownPhase(name, slowest.elapsed_s, slowest.rank, min(left) if left else None))
    return tuple(found)


# What an engine tells of a run rather than of its settings.
_OF_A_RUN = ("port", "host", "internal_states", "random_seed", "nccl_port", "status", "version", "served_model_name",
             "_resolved_overrides", "_cuda_graph_config_locked", "max_total_num_tokens", "max_req_input_len",
             "startup_time", "memory_usage", "last_gen_throughput")  # fmt: skip


def differing(here: Mapping[str, Any] | None, there: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]]:
    """Settings that the engine resolved otherwise, to (here, there); nothing where either told none."""
    if not here or not there:
        return {}
    mine, other = (
        flat({name: value for name, value in side.items() if name not in _OF_A_RUN and not name.startswith("_")})
        for side in (here, there)
    )
    return {
        name: (mine.get(name), other.get(name)) for name in sorted({*mine, *other}) if mine.get(name) != other.get(name)
    }


def as_text(shown: Shown) -> str:
    """For a terminal of 100 columns."""
    return "\n".join([*_head(shown), *_figures(shown), *_starts(shown), *_origin(shown)]) + "\n"


def _head(shown: Shown) -> list[str]:
    lines = [f"Trial {shown.number} of {shown.study}: {shown.label}"]
    if shown.rehearsal:
        lines.append(REHEARSED)
    marks = [word for word, true in (("baseline", shown.is_baseline), ("winner", shown.is_winner)) if true]
    score = "" if shown.score is None else f", score {'at most ' * shown.score_is_bound}{shown.score:.3f}"
    lines.append(f"  {shown.outcome}{score}" + (f" ({', '.join(marks)})" if marks else ""))
    if shown.remedy:
        lines.append(f"  What to do: {shown.remedy}")
    if shown.note:
        lines.append(f"  Note: {shown.note}")
    return lines


def _figures(shown: Shown) -> list[str]:
    lines: list[str] = []
    if shown.levels:
        lines += ["", "Levels", *level_lines(shown.levels)]
    if shown.settings:
        lines += ["", "Settings that differ from the baseline", *difference_lines(shown.settings)]
    others = {name: pair for name, pair in shown.resolved.items() if not _said(name, shown.settings)}
    if others:
        lines += ["", "What the engine resolved otherwise because of them", *difference_lines(others)]
    return lines


def _starts(shown: Shown) -> list[str]:
    lines: list[str] = []
    if shown.phases:
        lines += ["", "Start, slowest rank of each phase"]
        for phase in shown.phases:
            seconds = "?" if phase.seconds is None else f"{phase.seconds:.1f}"
            left = "" if phase.memory_left_gb is None else f"  {phase.memory_left_gb:8.2f} GB left"
            lines.append(f"  {phase.name:<20} {seconds:>8} s  {phase.slowest_rank:<8}{left}".rstrip())
    if shown.launches:
        lines += ["", "Launches"]
        for launch in shown.launches:
            total = "running" if launch.total_s is None else lasting(launch.total_s)
            lines.append(f"  {launch.id}: {launch.purpose}, {launch.outcome}, {total}, {launch.started_at}")
            parts = ", ".join(f"{p} {lasting(launch.parts_s[p])}" for p in PARTS if launch.parts_s.get(p))
            lines += [f"     {text}" for text in (parts, launch.log_path) if text]
    return lines


def _origin(shown: Shown) -> list[str]:
    lines: list[str] = []
    if shown.command:
        names = " ".join(f"{name}={shlex.quote(value)}" for name, value in sorted(shown.environment.items()))
        lines += ["", "Command", f"  {(names + ' ') if names else ''}{shown.command}"]
    if shown.versions:
        lines += ["", "Versions: " + ", ".join(f"{name} {version}" for name, version in shown.versions.items())]
    if shown.artifacts:
        lines += ["", "Kept files", *(f"  {path}" for path in shown.artifacts)]
    return lines


def level_lines(levels: Sequence[LevelFigures]) -> list[str]:
    """A line a level."""
    width = max(5, *(len(one.level) for one in levels))
    names = f"{'tok/s':>10} {'TTFT ms':>9} {'p99':>9} {'ITL ms':>8} {'p99':>8} {'accept':>7} {'failed':>7}"
    lines = [f"  {'level':<{width}} {names}"]
    for one in levels:
        cells = [
            (one.throughput, 10, 1), (one.ttft_ms, 9, 1), (one.ttft_ms_p99, 9, 1), (one.itl_ms, 8, 2),
            (one.itl_ms_p99, 8, 2), (one.acceptance_length, 7, 2),
        ]  # fmt: skip
        text = " ".join(f"{'-' if v is None else format(v, f',.{digits}f'):>{w}}" for v, w, digits in cells)
        lines.append(f"  {one.level:<{width}} {text} {one.failed:>7}")
    return lines


def difference_lines(differences: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """A line a setting: its value, and the other side's."""
    return [f"  {name}: {shortly(here)} (there: {shortly(there)})" for name, (here, there) in differences.items()]


def shortly(value: Any) -> str:
    """A value on one line; what is absent is named so."""
    text = "absent" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _said(name: str, settings: Mapping[str, Any]) -> bool:
    return "--" + name.replace("_", "-") in settings
