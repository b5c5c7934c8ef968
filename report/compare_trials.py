"""Two trials side by side: settings, what the engine made of them, the start, and every level with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmark.statistics import Interval
from report.level_figures import LevelPair, overall, pairs
from report.show import differing, shortly, shown_phases
from report.study_record import StudyRecord, phase_order
from report.trial_facts import REHEARSED
from storage import Store


@dataclass(frozen=True)
class PhasePair:
    """Seconds of one phase of both, on the slowest rank; ``None`` where one has no such phase."""

    name: str
    first_s: float | None
    second_s: float | None


@dataclass(frozen=True)
class TrialComparison:
    """The second trial against the first.

    Attributes:
        settings, resolved: to (first's, second's) value.
        overall: the interval of the second's score over the first's; ``None`` where a level is missing.
        environments_differ: the trials ran on other hardware or versions, so that their figures do not compare.
    """

    study: str
    first: int
    second: int
    first_label: str
    second_label: str
    rehearsal: bool
    environments_differ: bool
    settings: Mapping[str, tuple[Any, Any]]
    resolved: Mapping[str, tuple[Any, Any]]
    phases: tuple[PhasePair, ...]
    levels: tuple[LevelPair, ...]
    overall: Interval | None


def compare_trials(record: StudyRecord, store: Store, first: int, second: int) -> TrialComparison:
    """The second trial against the first. Raises ReportError for a number that is not there."""
    for number in (first, second):
        record.trial(number)
    a, b = record.main_launch(first), record.main_launch(second)
    settings: dict[str, tuple[Any, Any]]
    if a and b:
        settings = dict(a.configuration.differences(b.configuration))
    else:
        mine, other = record.trial(first).params, record.trial(second).params
        settings = {
            name: (mine.get(name), other.get(name))
            for name in sorted({*mine, *other})
            if mine.get(name) != other.get(name)
        }
    before, after = (
        {one.name: one.seconds for one in shown_phases(record.phases.get(launch.id, ()))} if launch else {}
        for launch in (a, b)
    )
    levels = pairs(record, store, first, second)
    return TrialComparison(
        study=record.name,
        first=first,
        second=second,
        first_label=record.label(first),
        second_label=record.label(second),
        rehearsal=record.rehearsal,
        environments_differ=bool(a and b and a.environment_id != b.environment_id),
        settings=settings,
        resolved=differing(a.server_info or a.resolved, b.server_info or b.resolved) if a and b else {},
        phases=tuple(
            PhasePair(name, before.get(name), after.get(name)) for name in sorted({*before, *after}, key=phase_order)
        ),
        levels=levels,
        overall=overall(record, store, first, second, levels),
    )


def as_text(found: TrialComparison) -> str:
    """For a terminal of 100 columns."""
    lines = [
        f"Trial {found.second} ({found.second_label})",
        f"against trial {found.first} ({found.first_label}) of {found.study}",
    ]
    if found.rehearsal:
        lines.append(REHEARSED)
    if found.environments_differ:
        lines.append("CAREFUL: they ran on other hardware or versions, so their figures do not compare.")
    if found.overall:
        lines.append(f"Over all levels: {found.overall.sentence()}")
    lines += ["", "Levels"] if found.levels else ["", f"Trial {found.first} was not measured at any level."]
    for pair in found.levels:
        if pair.other is None or pair.interval is None:
            lines.append(
                f"  {pair.level:<8} {pair.reference.throughput:>10,.1f} tok/s, trial {found.second} not measured"
            )
            continue
        rates = f"{pair.reference.throughput:>10,.1f} to {pair.other.throughput:>10,.1f} tok/s"
        lines.append(f"  {pair.level:<8} {rates}: {pair.interval.sentence()}")
        for name, one, other in (
            ("TTFT ms", pair.reference.ttft_ms, pair.other.ttft_ms),
            ("ITL ms", pair.reference.itl_ms, pair.other.itl_ms),
            ("acceptance length", pair.reference.acceptance_length, pair.other.acceptance_length),
            ("GPU memory left GB", pair.reference.memory_left_gb, pair.other.memory_left_gb),
        ):
            if one is not None or other is not None:
                lines.append(f"           {name}: {_figure(one)} to {_figure(other)}")
    lines += ["", "Settings (first, second)" if found.settings else "No setting differs."]
    lines += _differences(found.settings)
    others = {
        name: pair for name, pair in found.resolved.items() if "--" + name.replace("_", "-") not in found.settings
    }
    if others:
        lines += ["", "What the engine resolved otherwise because of them (first, second)", *_differences(others)]
    if found.phases:
        lines += ["", "Start, slowest rank (first, second)"]
        lines += [f"  {one.name:<20} {_seconds(one.first_s):>9} {_seconds(one.second_s):>9}" for one in found.phases]
    return "\n".join(lines) + "\n"


def _differences(values: Mapping[str, tuple[Any, Any]]) -> list[str]:
    return [f"  {name}: {shortly(one)}, {shortly(other)}" for name, (one, other) in values.items()]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
