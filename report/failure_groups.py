"""What failed, grouped by cause, with what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.failure import Failure
from report.study_record import StudyRecord

# How flows begin the texts that they leave on trials without a result.
_NOT_LAUNCHED, _INTERRUPTED = "not launched", "the search was interrupted"
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class FailureGroup:
    """Trials that failed alike; ``seconds`` is what their launches took."""

    cause: str
    blame: str
    phase: str
    remedy: str
    trials: tuple[int, ...]
    labels: tuple[str, ...]
    seconds: float


def failure_of(record: StudyRecord, number: int) -> Failure | None:
    """Why a trial came to no result, as fully as it was recorded; ``None`` for one that works."""
    trial = record.trial(number)
    facts = record.facts(number)
    launches = [launch for launch in record.launches_of(number) if launch.failure is not None]
    if facts is not None and facts.failure:
        if launches and launches[-1].failure is not None and launches[-1].failure.cause in facts.failure:
            return launches[-1].failure
        rank, phase, cause = _parts(facts.failure)
        return Failure(rank, phase, cause, facts.blame or "unknown", facts.remedy or "", "")  # type: ignore[arg-type]
    told = trial.user_attrs.get("failure")
    if facts is None and told:
        cause = str(told)
        if cause.startswith(_NOT_LAUNCHED):
            return Failure(None, "arguments", cause, "configuration", "", "")
        if cause.startswith(_INTERRUPTED):
            name = cause[len(_INTERRUPTED) :].strip(": ")
            cause = _INTERRUPTED + (f" ({name})" if name else "")
            return Failure(None, "", cause, "transient", "start the same command again: the study goes on", "")
        return Failure(None, "", cause, "unknown", "", "")
    return None


def failure_groups(record: StudyRecord) -> tuple[FailureGroup, ...]:
    """The most frequent cause first."""
    groups: dict[tuple[str, str], list[tuple[int, Failure]]] = {}
    for trial in record.trials:
        failure = failure_of(record, trial.number)
        if failure is not None:
            key = (failure.blame, _NUMBER.sub("#", failure.cause))
            groups.setdefault(key, []).append((trial.number, failure))
    spent: dict[int, float] = {}
    for launch in record.launches:
        if launch.trial_number is not None and launch.purpose != "confirm":
            taken = (launch.ended_at or launch.started_at) - launch.started_at
            spent[launch.trial_number] = spent.get(launch.trial_number, 0.0) + taken
    found = [
        FailureGroup(
            cause=members[0][1].cause,
            blame=members[0][1].blame,
            phase=members[0][1].phase,
            remedy=next((failure.remedy for _, failure in members if failure.remedy), ""),
            trials=tuple(number for number, _ in members),
            labels=tuple(record.label(number) for number, _ in members),
            seconds=sum(spent.get(number, 0.0) for number, _ in members),
        )
        for members in groups.values()
    ]
    return tuple(sorted(found, key=lambda one: (-len(one.trials), one.trials)))


def _parts(sentence: str) -> tuple[str | None, str, str]:
    """A failure's sentence taken apart again: rank, phase and cause."""
    where, colon, cause = sentence.partition(": ")
    if not colon or len(where) > 60:
        return None, "", sentence
    rank, comma, phase = where.partition(", ")
    return (rank, phase, cause) if comma else (None, where, cause)
