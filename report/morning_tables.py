"""The tables of the morning report as texts, shared by the page and its Markdown twin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from benchmark.statistics import Interval
from report.hours import MEANING, PARTS, lasting
from report.level_figures import LevelFigures
from report.morning import Morning

MISSING = "–"


@dataclass(frozen=True)
class Table:
    """Names of the columns and the cells, all texts. ``text_columns`` are read, not compared, so they stand left."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: frozenset[int] = field(default_factory=frozenset)
    marked: frozenset[int] = field(default_factory=frozenset)
    """Rows to stand out."""


def _figure(value: float | None, digits: int = 1) -> str:
    return MISSING if value is None else f"{value:,.{digits}f}"


def _with_p99(median: float | None, p99: float | None, digits: int) -> str:
    return MISSING if median is None else f"{_figure(median, digits)} ({_figure(p99, digits)})"


def _bytes(value: float | None) -> str:
    if value is None:
        return MISSING
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f} B"


def change_text(interval: Interval) -> str:
    """As in ``+3.3 % (-1.2 to +7.8)``, bold in Markdown where no change is excluded."""
    percent = f"{100 * (interval.mid - 1):+.1f} %"
    if interval.low is None or interval.high is None:
        return f"{percent} (unknown)"
    text = f"{percent} ({100 * (interval.low - 1):+.1f} to {100 * (interval.high - 1):+.1f})"
    return f"**{text}**" if interval.verdict in ("faster", "slower") else text


_FIGURES: tuple[tuple[str, Callable[[LevelFigures], str], Callable[[LevelFigures], object]], ...] = (
    ("throughput, tok/s", lambda one: _figure(one.throughput), lambda one: one.throughput),
    ("TTFT, ms (p99)", lambda one: _with_p99(one.ttft_ms, one.ttft_ms_p99, 1), lambda one: one.ttft_ms),
    ("ITL, ms (p99)", lambda one: _with_p99(one.itl_ms, one.itl_ms_p99, 2), lambda one: one.itl_ms),
    ("acceptance length", lambda one: _figure(one.acceptance_length, 2), lambda one: one.acceptance_length),
    ("PCIe per token", lambda one: _bytes(one.pcie_bytes_per_token), lambda one: one.pcie_bytes_per_token),
    ("GB left on GPU", lambda one: _figure(one.memory_left_gb, 2), lambda one: one.memory_left_gb),
)


def level_table(report: Morning) -> Table | None:
    """Baseline against winner at every level, every figure of both."""
    if not report.levels:
        return None
    both = report.challenger is not None
    sides = ["baseline"] + ([f"trial {report.challenger.number}"] if report.challenger else [])
    figures = [one[:2] for one in _FIGURES if any(one[2](side) is not None for pair in report.levels
               for side in (pair.reference, pair.other) if side is not None)]  # fmt: skip
    rows = []
    for pair in report.levels:
        rows.append((pair.level, sides[0], *(text(pair.reference) for _, text in figures), MISSING))
        if both:
            change = MISSING if pair.interval is None else change_text(pair.interval)
            cells = (
                tuple(text(pair.other) for _, text in figures)
                if pair.other
                else ("not measured", *[MISSING] * (len(figures) - 1))
            )
            rows.append((pair.level, sides[1], *cells, change))
    absent = [one[0].partition(",")[0] for one in _FIGURES if one[:2] not in figures]
    caption = (
        "Times are medians over requests. The change of throughput has its 95 % interval in parentheses and is bold "
        "where that excludes no change."
    )
    if absent:
        caption += f" Not measured in this study: {', '.join(absent)}."
    columns = ("level", "configuration", *(name for name, _ in figures), "change of throughput")
    rows_kept = tuple(rows if both else [row[:-1] for row in rows])
    standing_out = both and not report.baseline_wins
    return Table(
        caption, columns if both else columns[:-1], rows_kept,
        frozenset({0, 1}),
        frozenset(index for index, row in enumerate(rows_kept) if standing_out and row[1] == sides[-1]),
    )  # fmt: skip


def leaderboard_table(report: Morning, most: int | None = None) -> Table:
    """The trials, the best first; stopped ones with the bound that they were stopped at."""
    rows, marked = [], set()
    winner = report.record.winner
    for index, row in enumerate(report.record.standings[:most]):
        bound = "≤ " if row.facts.stopped_early and row.score is not None else ""
        score = MISSING if row.score is None else f"{bound}{row.score:.3f}"
        rates = [_figure(row.facts.throughput.get(level)) for level in report.record.levels]
        rows.append((str(row.number), score, *rates, row.facts.label, row.outcome))
        if winner is not None and row.number == winner.number:
            marked.add(index)
    columns = ("trial", "score", *(f"tok/s {level}" for level in report.record.levels), "what it changes", "outcome")
    caption = "Score 1.000 is the baseline; ≤ marks the bound at which a trial was stopped early."
    return Table(
        caption, columns, tuple(rows), frozenset({len(columns) - 2, len(columns) - 1}), frozenset(marked)
    )  # fmt: skip


def effects_table(report: Morning, most: int = 12) -> Table | None:
    """What each setting changed, in percent at each level."""
    found = report.effects[:most]
    if not found:
        return None
    levels = [level for level in report.record.levels if any(level in one.ratio for one in found)]
    rows = tuple(
        (one.label, str(one.trials), *(_change(one.ratio.get(level), one.spread.get(level), one.is_clear(level))
                                       for level in levels))
        for one in found
    )  # fmt: skip
    return Table(
        "Change of throughput, one standard deviation after ±; bold is beyond two of them.",
        ("setting", "trials", *levels),
        rows,
        frozenset({0}),
    )


def _change(ratio: float | None, spread: float | None, clear: bool) -> str:
    if ratio is None or spread is None:
        return MISSING
    text = f"{100 * (ratio - 1):+.1f} ± {100 * spread:.1f} %"
    return f"**{text}**" if clear else text


def failures_table(report: Morning) -> Table | None:
    """Causes, the most frequent first."""
    if not report.failures:
        return None
    rows = tuple(
        (
            str(len(one.trials)),
            _shortened(one.trials),
            one.blame + (f", {one.phase}" if one.phase else ""),
            one.cause,
            one.remedy or MISSING,
            lasting(one.seconds),
        )
        for one in report.failures
    )
    return Table(
        "Trials that came to no result, grouped by cause.",
        ("trials", "numbers", "whose fault, where", "cause", "remedy", "time"),
        rows,
        frozenset({1, 2, 3, 4}),
    )


def hours_table(report: Morning) -> Table | None:
    """Time by part."""
    spent = report.hours
    if spent.total_s <= 0:
        return None
    rows = [
        (part, MEANING[part], lasting(spent.seconds[part]), f"{100 * spent.seconds[part] / spent.total_s:.0f} %")
        for part in PARTS
    ]
    rows.append(("all", f"{len(spent.launches)} launches", lasting(spent.total_s), "100 %"))
    return Table("", ("part", "what it is", "time", "share"), tuple(rows), frozenset({0, 1}))


def hours_sentence(report: Morning) -> str:
    """What the table does not say."""
    spent = report.hours
    parts = []
    if spent.failed_s:
        parts.append(f"{lasting(spent.failed_s)} went into launches that failed.")
    if spent.paused_s:
        parts.append(f"Pauses of more than ten minutes, {lasting(spent.paused_s)} in all, are not counted.")
    return " ".join(parts)


def _shortened(numbers: Sequence[int], most: int = 12) -> str:
    shown = ", ".join(map(str, numbers[:most]))
    return shown + (f" and {len(numbers) - most} more" if len(numbers) > most else "")


def levels_of_one(levels: Sequence[LevelFigures]) -> list[str]:
    """One configuration's levels as lines of Markdown."""
    figures = [one[:2] for one in _FIGURES if any(one[2](level) is not None for level in levels)]
    lines = ["| level | " + " | ".join(name for name, _ in figures) + " |", "| --- |" + " ---: |" * len(figures)]
    return lines + [f"| {one.level} | " + " | ".join(text(one) for _, text in figures) + " |" for one in levels]
