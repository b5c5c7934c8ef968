"""The leaderboard: every trial of a study, the best first, the failed ones with their reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.trial import TrialState

from report.trial_facts import TrialFacts, feasible


@dataclass(frozen=True)
class Standing:
    """One trial in its place; ``score`` is ``None`` for a configuration that does not work."""

    number: int
    score: float | None
    facts: TrialFacts

    @property
    def outcome(self) -> str:
        """What came of it, in a few words."""
        if self.facts.failure:
            return f"{self.facts.blame}: {self.facts.failure}"
        if self.facts.reused_from is not None:
            return f"same as trial {self.facts.reused_from}"
        return "stopped early" if self.facts.stopped_early else "measured"


def standings(study: optuna.Study) -> list[Standing]:
    """The trials that quietlane finished, the best first; those that do not work come last, in their order."""
    rows: list[Standing] = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL)):
        facts = TrialFacts.of(trial)
        if facts is not None:
            rows.append(Standing(trial.number, trial.value if feasible(trial) and not facts.failure else None, facts))
    return sorted(rows, key=lambda row: (row.score is None, -(row.score or 0.0), row.number))


def _level_names(rows: Sequence[Standing]) -> list[str]:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row.facts.throughput))
    return list(names)


def cells(row: Standing, levels: Sequence[str]) -> list[str]:
    """One row of the leaderboard as texts: trial, score, tok/s and acceptance length by level, outcome, what."""
    facts = row.facts
    figures = []
    for level in levels:
        value = facts.throughput.get(level)
        text = f"{value:,.1f}" if value is not None else "-"
        if level in facts.acceptance:
            text += f" ({facts.acceptance[level]:.2f})"
        figures.append(text)
    score = f"{row.score:.3f}" if row.score is not None else "-"
    return [str(row.number), score, *figures, row.outcome, facts.label]


def header(levels: Sequence[str]) -> list[str]:
    """The names of the columns."""
    return ["trial", "score", *(f"tok/s {level}" for level in levels), "outcome", "what"]


def as_markdown(rows: Sequence[Standing]) -> str:
    """The leaderboard as a Markdown table; figures in parentheses are acceptance lengths."""
    levels = _level_names(rows)
    names = header(levels)

    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in texts) + " |"

    table = [line(names), line(["---"] * len(names)), *(line(cells(row, levels)) for row in rows)]
    note = ["", "Score 1.0 is the baseline; in parentheses: acceptance length."]
    if any(row.facts.rehearsal for row in rows):
        note = ["", "**REHEARSAL: a stand-in engine, every figure is invented.**", *note]
    return "\n".join([*table, *note, ""])


def as_rows(rows: Sequence[Standing]) -> tuple[list[str], list[list[str]]]:
    """Column names and cells, for a table on the terminal."""
    levels = _level_names(rows)
    return header(levels), [cells(row, levels) for row in rows]
