"""The tally as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.search.analysis.outcomes import Outcome, figures, paired


def page(outcomes: Sequence[Outcome], ours: str, facts: Mapping[str, str], notes: Sequence[str]) -> str:
    """Tables by family, paired differences, and how the figures were taken."""
    checkpoints = sorted({outcome.launches for outcome in outcomes})
    lines = ["# How well a search does", ""]
    lines += [
        "True value of the named best configuration in percent of the optimum: mean / median (worst seed). The optimum "
        "is the best found by long local search on the surface without noise. Every strategy saw the same surfaces, "
        "the same seeds and the same 2 % noise. A false winner is named best although something launched is truly more "
        "than 2 % better.",
        "",
    ]
    for family in sorted({outcome.family for outcome in outcomes}):
        rows = [outcome for outcome in outcomes if outcome.family == family]
        lines += [f"## {family}", "", *_reached(rows, checkpoints, ours), "", *_paired(rows, checkpoints, ours), ""]
    lines += ["## How it was taken", "", *(f"- {name}: {value}" for name, value in facts.items())]
    if notes:
        lines += ["", "## What falls short", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def _strategies(rows: Sequence[Outcome], ours: str) -> list[str]:
    return sorted({row.strategy for row in rows}, key=lambda name: (name != ours, name))


def _reached(rows: Sequence[Outcome], checkpoints: Sequence[int], ours: str) -> list[str]:
    head = [f"@{launches}" for launches in checkpoints]
    lines = [
        "| strategy | " + " | ".join(head) + " | crashed | engine hours | false winners | seeds |",
        "|---|" + "---|" * (len(head) + 4),
    ]
    for strategy in _strategies(rows, ours):
        own = [row for row in rows if row.strategy == strategy]
        cells = []
        for launches in checkpoints:
            at = [row for row in own if row.launches == launches]
            if not at:
                cells.append("-")
                continue
            seen = figures(at)
            cells.append(f"{seen.mean:.1f} / {seen.median:.1f} ({seen.worst:.0f})")
        last = figures([row for row in own if row.launches == max(row.launches for row in own)])
        tail = [f"{last.crashed:.1f} %", f"{last.engine_h:.1f}", f"{last.false_winners:.0f} %", str(last.seeds)]
        lines.append(f"| {strategy} | " + " | ".join(cells + tail) + " |")
    return lines


def _paired(rows: Sequence[Outcome], checkpoints: Sequence[int], ours: str) -> list[str]:
    lines = [
        "Ahead of the others by (points, 95 % interval; share of seeds won):",
        "",
        "| than | " + " | ".join(f"@{launches}" for launches in checkpoints) + " |",
        "|---|" + "---|" * len(checkpoints),
    ]
    for strategy in _strategies(rows, ours):
        if strategy == ours:
            continue
        cells = []
        for launches in checkpoints:
            mine = [row for row in rows if row.strategy == ours and row.launches == launches]
            theirs = [row for row in rows if row.strategy == strategy and row.launches == launches]
            one = paired(mine, theirs)
            cells.append(
                "-" if one is None else f"{one.ahead:+.1f} ({one.low:+.1f} to {one.high:+.1f}; {one.won:.0f} %)"
            )
        lines.append(f"| {strategy} | " + " | ".join(cells) + " |")
    return lines
