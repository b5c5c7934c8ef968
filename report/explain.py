"""Why a trial failed, lost or won, in sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from report.effects import effects
from report.failure_groups import failure_groups, failure_of
from report.level_figures import overall, pairs
from report.study_record import StudyRecord
from report.trial_facts import REHEARSED
from storage import Store

Came = Literal["won", "lost", "is the baseline", "cannot be told apart", "failed", "has not ended"]


@dataclass(frozen=True)
class Explanation:
    """What became of a trial.

    Attributes:
        sentence: the whole answer in one.
        reasons: what it follows from, one sentence each.
        evidence: lines of the engine's log, where it failed.
    """

    study: str
    number: int
    label: str
    rehearsal: bool
    came: Came
    sentence: str
    reasons: tuple[str, ...]
    remedy: str | None
    evidence: str | None
    log_path: str | None


def explain(record: StudyRecord, store: Store, number: int) -> Explanation:
    """Why a trial came to what it came to. Raises ReportError for a number that is not there."""
    trial, row = record.trial(number), record.standing(number)
    launch = record.main_launch(number)
    failure = failure_of(record, number)
    remedy = evidence = None
    if failure is not None:
        came: Came = "failed"
        whose = {"configuration": "the configuration's own fault", "environment": "the machine's fault",
                 "transient": "a passing fault"}.get(failure.blame, "nobody's known fault")  # fmt: skip
        sentence = f"Trial {number} failed: {failure.sentence().lstrip(': ')} ({whose})."
        reasons = _alike(record, number)
        remedy, evidence = failure.remedy or None, failure.evidence or None
    elif row is None or row.score is None:
        came, sentence, reasons = (
            "has not ended",
            f"Trial {number} is {trial.state.name.lower()}: nothing is known yet.",
            [],
        )
    else:
        came, sentence, reasons = _measured(record, store, number)
    facts = record.facts(number)
    if facts is not None and facts.reused_from is not None:
        reasons.insert(0, f"The engine resolves it to the same as trial {facts.reused_from}, whose result it shares.")
    return Explanation(
        study=record.name,
        number=number,
        label=record.label(number),
        rehearsal=record.rehearsal,
        came=came,
        sentence=sentence,
        reasons=tuple(reasons),
        remedy=remedy,
        evidence=evidence,
        log_path=str(launch.log_path) if launch and launch.log_path else None,
    )


def _measured(record: StudyRecord, store: Store, number: int) -> tuple[Came, str, list[str]]:
    row, baseline = record.standing(number), record.baseline
    assert row is not None, "only a finished trial with a score is asked about"
    if baseline is None:
        return "has not ended", f"Trial {number} scores {row.score:.3f}, but no baseline was measured.", []
    if number == baseline.number:
        rivals = sum(one.score is not None for one in record.standings) - 1
        wins = record.winner is not None and record.winner.number == number
        sentence = f"Trial {number} is the baseline" + (f", and none of {rivals} others beat it." if wins else ".")
        return "is the baseline", sentence, []
    levels = pairs(record, store, baseline.number, number)
    reasons = [
        f"{pair.level}: {pair.interval.sentence()}." if pair.interval and pair.other else f"{pair.level}: not measured."
        for pair in levels
    ]
    reasons += _settings(record, number)
    if row.facts.stopped_early:
        last = [pair.level for pair in levels if pair.other is not None]
        at = f" after {last[-1]}" if last else ""
        return "lost", (
            f"Trial {number} was stopped early{at}: even the best seen at the other levels could have brought it to "
            f"{row.score:.3f} of the baseline at most, less than the best trial had."
        ), reasons  # fmt: skip
    interval = overall(record, store, baseline.number, number, levels)
    how = f": {interval.sentence()} over all levels" if interval else ""
    if record.winner is not None and number == record.winner.number:
        return "won", f"Trial {number} scores best, {row.score:.3f} of the baseline{how}.", reasons
    best = f" Trial {record.winner.number} scores {record.winner.score:.3f}." if record.winner else ""
    if interval is not None and interval.verdict == "cannot be told apart":
        return "cannot be told apart", f"Trial {number} {interval.sentence()} from the baseline.{best}", reasons
    return "lost", f"Trial {number} scores {row.score:.3f} of the baseline{how}.{best}", reasons


def _settings(record: StudyRecord, number: int) -> list[str]:
    """What its own settings did, by the estimate over all trials; only what is clear."""
    params = record.trial(number).params
    found = []
    for effect in effects(record):
        clear = [level for level in effect.ratio if effect.is_clear(level)]
        if clear and all(params.get(name) == value for name, value in effect.settings):
            changes = ", ".join(f"{level} {100 * (effect.ratio[level] - 1):+.1f} %" for level in clear)
            found.append(f"Over all trials, {effect.label} changed throughput by {changes}.")
    return found


def _alike(record: StudyRecord, number: int) -> list[str]:
    for group in failure_groups(record):
        if number in group.trials and len(group.trials) > 1:
            others = [one for one in group.trials if one != number]
            shown = ", ".join(map(str, others[:10])) + (" and more" if len(others) > 10 else "")
            return [f"{len(others)} other trials failed alike: {shown}."]
    return []


def as_text(found: Explanation) -> str:
    """For a terminal of 100 columns."""
    lines = [found.sentence, f"  It changes: {found.label}"]
    if found.rehearsal:
        lines.append(f"  {REHEARSED}")
    lines += [f"  - {reason}" for reason in found.reasons]
    if found.remedy:
        lines.append(f"  What to do: {found.remedy}")
    if found.evidence:
        lines += ["", "The engine said", *(f"  | {line}" for line in found.evidence.splitlines()[-20:])]
    if found.log_path:
        lines += ["", f"Log: {found.log_path}"]
    return "\n".join(lines) + "\n"
