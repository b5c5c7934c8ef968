"""The verdict as a page for a person and as plain values for a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmark.statistics import launches_interval
from report.repeated_looks import Comparison
from report.verdict import Judge, Repeats, Verdict


def as_markdown(
    study: str,
    judge: Judge,
    everyone: Sequence[Repeats],
    verdict: Verdict,
    *,
    stopped_because: str | None = None,
    rehearsal: bool = False,
) -> str:
    """The whole verdict as Markdown."""
    lines = [f"# Verdict on {study}", "", verdict.headline, ""]
    if rehearsal:
        lines[2:2] = ["**REHEARSAL: a stand-in engine, every figure is invented.**", ""]
    if stopped_because:
        lines += [f"It ended early: {stopped_because}", ""]
    if verdict.speculation:
        lines += ["## Speculation", "", *(f"- {line}" for line in verdict.speculation), ""]
    lines += ["## Each configuration", "", *_table(judge, everyone, verdict), ""]
    lines += ["## Against the baseline, level by level", "", *_by_level(judge, everyone), ""]
    lines += [
        f"Over all looks (at most {judge.most} launches of each), any comparison with the baseline is wrong in at most "
        f"{100 * judge.error:g} % of reports, and the truly fastest is called slower in at most as many: so the "
        "intervals are wider than those of a single look. The same holds for each level by itself. "
        "In parentheses after a throughput: the 95 % interval of one configuration over its launches.",
        "",
    ]
    return "\n".join(lines)


def _table(judge: Judge, everyone: Sequence[Repeats], verdict: Verdict) -> list[str]:
    levels = list(dict.fromkeys(level for one in everyone for level in one.levels))
    head = ["configuration", "launches", *(f"tok/s {level}" for level in levels), "PCIe bytes/token"]
    rows = [[*head, "against the baseline", "against the fastest", "outcome"]]
    rows.append(["---"] * len(rows[0]))
    for one in everyone:
        rows.append(
            [
                one.called(),
                str(len(one.throughput)),
                *(_throughput(one, level) for level in levels),
                "-" if one.pcie_bytes_per_token is None else f"{one.pcie_bytes_per_token:,.0f}",
                _said(verdict.against_baseline.get(one.name)),
                _said(verdict.against_fastest.get(one.name)),
                _outcome(one, verdict),
            ]
        )
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]


def _throughput(one: Repeats, level: str) -> str:
    if level not in one.levels:
        return "-"
    values = one.at(level)
    interval = launches_interval(values)
    text = f"{sum(values) / len(values):,.1f}"
    return text if interval is None else f"{text} ({interval[0]:,.1f} to {interval[1]:,.1f})"


def _said(comparison: Comparison | None) -> str:
    return "-" if comparison is None else comparison.sentence()


def _outcome(one: Repeats, verdict: Verdict) -> str:
    if one is verdict.winner:
        return "**winner**"
    if one.out:
        return one.out
    return "tied with the fastest" if one in verdict.tied else "slower"


def _by_level(judge: Judge, everyone: Sequence[Repeats]) -> list[str]:
    baseline = next((one for one in everyone if one.is_baseline and one.throughput), None)
    if baseline is None:
        return ["The baseline was not measured."]
    return [
        f"- {one.called()}: "
        + "; ".join(f"{level} {found.sentence()}" for level, found in judge.by_level(one, baseline).items())
        for one in everyone
        if one is not baseline and one.throughput
    ]


def as_dict(judge: Judge, everyone: Sequence[Repeats], verdict: Verdict) -> dict[str, Any]:
    """Every repeat and every comparison, as plain values."""
    baseline = next((one for one in everyone if one.is_baseline and one.throughput), None)
    return {
        "configurations": [
            {
                "name": one.name,
                "label": one.label,
                "algorithm": one.algorithm,
                "throughput": [dict(launch) for launch in one.throughput],
                "pcie_bytes_per_token": one.pcie_bytes_per_token,
                "out": one.out,
                "against_baseline": _plain(verdict.against_baseline.get(one.name)),
                "against_fastest": _plain(verdict.against_fastest.get(one.name)),
                "against_baseline_by_level": {
                    level: _plain(found) for level, found in judge.by_level(one, baseline).items()
                }
                if baseline and one is not baseline and one.throughput
                else {},
            }
            for one in everyone
        ],
        "error": judge.error,
        "comparisons": max(judge.rivals - 1, 1),
    }


def _plain(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    found = comparison.interval
    return {
        "ratio": found.mid,
        "low": found.low,
        "high": found.high,
        "verdict": found.verdict if found.verdict != "unknown" else "cannot be told apart",
        "confidence": found.confidence,
        "launches": comparison.launches,
        "decided": comparison.decided,
    }
