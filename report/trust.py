"""How far the figures can be trusted: each doubt one sentence, with what would remove it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmark.statistics import relative_half_width
from report.level_figures import LevelFigures, figures_of
from report.study_record import StudyRecord, with_samples
from storage import Store

Weight = Literal["good", "note", "caution"]
# A level measured for less than this sees too little of a second's ups and downs.
_SHORT_S = 10.0


@dataclass(frozen=True)
class Remark:
    """One thing that makes the figures more or less trustworthy."""

    weight: Weight
    sentence: str


def remarks(record: StudyRecord, store: Store) -> tuple[Remark, ...]:
    """Everything worth knowing before the verdict is believed, the gravest first."""
    found: list[Remark] = []
    if record.rehearsal:
        found.append(Remark("caution", "A stand-in engine was launched: every figure is invented."))
    found += [*_environments(record), *_launches(record), *_noise(record, store), *_drift(record)]
    for row, name in ((record.baseline, "baseline"), (record.winner, "winner")):
        if row is not None and (name == "baseline" or row != record.baseline):
            found += _levels(name, figures_of(record, row.number))
    stopped = sum(row.facts.stopped_early for row in record.standings)
    if stopped:
        found.append(
            Remark("note", f"{_count(stopped, 'trial')} stopped early, since even the best seen at the other levels "
                   "could not have made it win: such a score is an upper bound, not a result.")
        )  # fmt: skip
    order = ("caution", "note", "good")
    return tuple(sorted(found, key=lambda one: order.index(one.weight)))


def _launches(record: StudyRecord) -> list[Remark]:
    if record.baseline is None or record.winner is None:
        return []
    counts = [len(record.repeats(row.number)) for row in (record.baseline, record.winner)]
    found = []
    if record.winner.number == record.baseline.number:
        text = f"The baseline's figures come from {_launches_said(counts[0])}"
    else:
        first, second = map(_launches_said, counts)
        text = f"The baseline's figures come from {first}, the winner's from {second}"
        tried = sum(row.score is not None for row in record.standings)
        if counts[1] < 2 and tried > 2:
            found.append(
                Remark("caution", f"The winner is the best of {tried} and was not launched again: the best of many "
                       "flatters itself. Launch it and the baseline twice more before you rely on it.")
            )  # fmt: skip
    if min(counts) > 1:
        found.append(Remark("good", text + ": the intervals include what differs between launches."))
    else:
        found.append(Remark("note", text + ": the intervals leave out what differs between launches."))
    return found


def _noise(record: StudyRecord, store: Store) -> list[Remark]:
    spreads = []
    for row in {row.number: row for row in (record.baseline, record.winner) if row}.values():
        for level in record.levels:
            rates = [record.measured(launch.id)[level].measurement.output_throughput
                     for launch in record.repeats(row.number) if level in record.measured(launch.id)]  # fmt: skip
            if len(rates) > 1 and min(rates) > 0:
                spreads.append(float(np.std(np.log(rates), ddof=1)))
    if spreads:
        return [Remark("good", f"Launches of one configuration differ by {100 * max(spreads):.1f} % (standard "
                       "deviation, at the noisiest level).")]  # fmt: skip
    launch = record.main_launch(record.baseline.number) if record.baseline else None
    if launch is None:
        return []
    widths = {level: relative_half_width(with_samples(store, one)) for level, one in record.measured(launch.id).items()}
    known = {level: width for level, width in widths.items() if width is not None}
    if not known:
        return []
    texts = ", ".join(f"{level} ±{100 * width:.1f} %" for level, width in known.items())
    return [Remark("note", f"Noise within the baseline's launch: {texts} (95 %).")]


def _drift(record: StudyRecord) -> list[Remark]:
    if record.baseline is None:
        return []
    repeats = record.measured_launches(record.baseline.number)
    if len(repeats) < 2:
        return [Remark("note", "Whether the machine drifted cannot be seen: the baseline ran once only.")]
    first, last = record.measured(repeats[0].id), record.measured(repeats[-1].id)
    logs = [
        math.log(last[level].measurement.output_throughput / first[level].measurement.output_throughput)
        for level in first
        if level in last and min(first[level].measurement.output_throughput, last[level].measurement.output_throughput)
    ]
    if not logs:
        return []
    change = 100 * math.expm1(sum(logs) / len(logs))
    hours = (repeats[-1].started_at - repeats[0].started_at) / 3600
    weight: Weight = "caution" if abs(change) > 3 else "good"
    return [
        Remark(weight, f"From its first to its last launch, {hours:.1f} h later, the baseline moved {change:+.1f} %.")
    ]


def _environments(record: StudyRecord) -> list[Remark]:
    used = list(dict.fromkeys(one.environment_id for one in record.launches if one.environment_id is not None))
    known = [record.environments[id] for id in used if id in record.environments]
    if len(known) < 2:
        return [Remark("good", "Hardware, driver and versions stayed the same.")] if known else []
    changed: dict[str, None] = {}
    for one in known[1:]:
        before, now = flat(known[0].details), flat(one.details)
        for name in sorted({*before, *now}):
            if before.get(name) != now.get(name) and not name.endswith("memory_total_gb"):
                changed[f"{name} {before.get(name, 'absent')} to {now.get(name, 'absent')}"] = None
    what = "; ".join(list(changed)[:6]) or "nothing but the host's memory"
    return [Remark("caution", f"The machine changed during the study ({what}): compare only within one environment.")]


def _levels(name: str, figures: Mapping[str, LevelFigures]) -> list[Remark]:
    found = []
    unsteady = [level for level, one in figures.items() if not one.steady]
    if unsteady:
        found.append(Remark("caution", f"The {name} was not steady after its warm-up at {', '.join(unsteady)}: "
                            "raise warm_up_s in the space."))  # fmt: skip
    short = [f"{level} ({one.duration_s / one.launches:.1f} s)" for level, one in figures.items()
             if one.duration_s / one.launches < _SHORT_S]  # fmt: skip
    if short:
        found.append(Remark("note", f"The {name} was measured for less than {_SHORT_S:.0f} s at {', '.join(short)}: "
                            "raise requests in the space."))  # fmt: skip
    failed = {level: one.failed for level, one in figures.items() if one.failed}
    if failed:
        texts = ", ".join(f"{count} at {level}" for level, count in failed.items())
        found.append(Remark("caution", f"Requests of the {name} failed: {texts}."))
    return found


def flat(values: Any, before: str = "") -> dict[str, Any]:
    """Nested values by their path, as in ``versions.torch``."""
    if isinstance(values, Mapping):
        found: dict[str, Any] = {}
        for name, inner in values.items():
            found |= flat(inner, f"{before}.{name}" if before else str(name))
        return found
    if isinstance(values, list | tuple) and any(isinstance(one, Mapping) for one in values):
        return {name: one for i, inner in enumerate(values) for name, one in flat(inner, f"{before}.{i}").items()}
    return {before: values}


def _launches_said(number: int) -> str:
    return "one launch" if number == 1 else f"{number} launches"


def _count(number: int, what: str) -> str:
    return f"{number} {what} was" if number == 1 else f"{number} {what}s were"
