"""Two configurations at every level: the figures of each, and whether their throughputs differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmark.statistics import Interval, Verdict, ratio_interval
from report.study_record import StudyRecord, with_samples
from storage import Store


@dataclass(frozen=True)
class LevelFigures:
    """One configuration at one level, the mean over its launches; ``None`` where a figure was not measured.

    Attributes:
        throughput: output tokens a second.
        ttft_ms, ttft_ms_p99, itl_ms, itl_ms_p99: medians and 99th percentiles in milliseconds.
        pcie_bytes_per_token: bytes over PCIe for each output token, both directions, all GPUs.
        memory_left_gb: on the fullest GPU once the engine was ready.
        steady: whether every measurement was steady after its warm-up.
    """

    level: str
    throughput: float
    ttft_ms: float | None
    ttft_ms_p99: float | None
    itl_ms: float | None
    itl_ms_p99: float | None
    acceptance_length: float | None
    pcie_bytes_per_token: float | None
    memory_left_gb: float | None
    completed: int
    failed: int
    duration_s: float
    launches: int
    steady: bool


@dataclass(frozen=True)
class LevelPair:
    """Both at one level; ``other`` is ``None`` where the second configuration was not measured there."""

    level: str
    reference: LevelFigures
    other: LevelFigures | None
    interval: Interval | None


def figures_of(record: StudyRecord, number: int) -> dict[str, LevelFigures]:
    """A trial's figures by level, over all launches of its configuration."""
    launches = record.repeats(number)
    found: dict[str, LevelFigures] = {}
    for level in record.levels:
        measured = [(launch.id, record.measured(launch.id)[level].measurement) for launch in launches
                    if level in record.measured(launch.id)]  # fmt: skip
        if not measured:
            continue
        runs = [run for _, run in measured]
        found[level] = LevelFigures(
            level=level,
            throughput=math.exp(float(np.mean([math.log(max(run.output_throughput, 1e-9)) for run in runs]))),
            ttft_ms=_mean([run.ttft_ms.p50 if run.ttft_ms else None for run in runs]),
            ttft_ms_p99=_mean([run.ttft_ms.p99 if run.ttft_ms else None for run in runs]),
            itl_ms=_mean([run.itl_ms.p50 if run.itl_ms else None for run in runs]),
            itl_ms_p99=_mean([run.itl_ms.p99 if run.itl_ms else None for run in runs]),
            acceptance_length=_mean([run.acceptance_length for run in runs]),
            pcie_bytes_per_token=_mean([run.pcie_bytes_per_token for run in runs]),
            memory_left_gb=_least([record.memory_left_gb(launch_id) for launch_id, _ in measured]),
            completed=sum(run.completed for run in runs),
            failed=sum(run.failed for run in runs),
            duration_s=sum(run.duration_s for run in runs),
            launches=len(runs),
            steady=all(run.steady for run in runs),
        )
    return found


def pairs(record: StudyRecord, store: Store, reference: int, other: int) -> tuple[LevelPair, ...]:
    """Every level of two trials, the interval being that of the other's throughput over the reference's."""
    first, second = figures_of(record, reference), figures_of(record, other)
    return tuple(
        LevelPair(
            level,
            first[level],
            second.get(level),
            _interval(record, store, reference, other, level) if level in second and reference != other else None,
        )
        for level in record.levels
        if level in first
    )


def overall(
    record: StudyRecord, store: Store, reference: int, other: int, at_levels: Sequence[LevelPair]
) -> Interval | None:
    """The interval of the score, the weighted geometric mean of the ratios at every level.

    Launches repeat where there are several of both. With one launch a side the levels are independent, and the half
    widths of their intervals add in squares. ``None`` where a level is missing.
    """
    whole = [pair for pair in at_levels if pair.interval is not None]
    if not whole or len(whole) < len(at_levels):
        return None
    levels = [pair.level for pair in whole]
    sides = [_launch_scores(record, number, levels) for number in (other, reference)]
    if all(sides) and max(map(len, sides)) > 1:
        return ratio_interval(sides[0], sides[1])
    total = sum(record.weights[level] for level in levels)
    shares = [record.weights[level] / total for level in levels]
    intervals = [pair.interval for pair in whole if pair.interval is not None]
    middle = sum(share * math.log(one.mid) for share, one in zip(shares, intervals, strict=True))
    widths = [
        (math.log(one.mid / one.low), math.log(one.high / one.mid))
        for one in intervals
        if one.low is not None and one.high is not None
    ]
    if len(widths) < len(intervals):
        return Interval(None, math.exp(middle), None, "unknown")
    down, up = (
        math.sqrt(sum((share * width[side]) ** 2 for share, width in zip(shares, widths, strict=True)))
        for side in (0, 1)
    )
    low, high = math.exp(middle - down), math.exp(middle + up)
    verdict: Verdict = "faster" if low > 1 else "slower" if high < 1 else "cannot be told apart"
    return replace(intervals[0], low=low, mid=math.exp(middle), high=high, verdict=verdict, within_one_launch=True)


def _launch_scores(record: StudyRecord, number: int, levels: Sequence[str]) -> list[float]:
    """The weighted geometric mean of the throughputs of each launch that was measured at all levels."""
    total = sum(record.weights[level] for level in levels)
    scores = []
    for launch in record.repeats(number):
        runs = record.measured(launch.id)
        if all(level in runs and runs[level].measurement.output_throughput > 0 for level in levels):
            logs = [record.weights[one] * math.log(runs[one].measurement.output_throughput) for one in levels]
            scores.append(math.exp(sum(logs) / total))
    return scores


def _interval(record: StudyRecord, store: Store, reference: int, other: int, level: str) -> Interval | None:
    runs = [
        [
            record.measured(launch.id)[level]
            for launch in record.repeats(number)
            if level in record.measured(launch.id)
            and record.measured(launch.id)[level].measurement.output_throughput > 0
        ]
        for number in (other, reference)
    ]
    if not all(runs):
        return None
    within = None
    if len(runs[0]) == len(runs[1]) == 1:
        within = (with_samples(store, runs[0][0]), with_samples(store, runs[1][0]))
    rates = [[run.measurement.output_throughput for run in side] for side in runs]
    return ratio_interval(rates[0], rates[1], within=within)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if known else None
