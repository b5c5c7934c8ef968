"""What the morning report says, before it is a page: the verdict, the levels, the causes, the hours, the doubts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from benchmark.statistics import Interval
from report.effects import Effect, effects
from report.export import export
from report.failure_groups import FailureGroup, failure_groups
from report.hours import Hours, hours
from report.leaderboard import Standing
from report.level_figures import LevelPair, overall, pairs
from report.study_record import ReportError, StudyRecord
from report.trust import Remark, remarks
from storage import Store

REHEARSAL_SENTENCE = "REHEARSAL: a stand-in engine was launched, so every figure on this page is invented."


@dataclass(frozen=True)
class Point:
    """One trial in the history; ``score`` is ``None`` where it has none, an upper bound if it was stopped early."""

    number: int
    label: str
    score: float | None
    kind: str  # "baseline", "measured", "same as another", "stopped early", "failed"


@dataclass(frozen=True)
class Morning:
    """Everything on the page.

    Attributes:
        verdict: one sentence with its interval; ``confirmed`` that of ``quietlane confirm``, where it was run.
        challenger: what the baseline is compared with: the winner, or the closest other trial where the baseline wins.
        command: the launch script of the winner.
    """

    record: StudyRecord
    verdict: str
    confirmed: str | None
    interval: Interval | None
    challenger: Standing | None
    levels: tuple[LevelPair, ...]
    command: str | None
    history: tuple[Point, ...]
    effects: tuple[Effect, ...]
    failures: tuple[FailureGroup, ...]
    hours: Hours
    trust: tuple[Remark, ...]
    next_steps: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    written_at: datetime

    @property
    def title(self) -> str:
        """Title of the page."""
        return f"{self.record.name}: morning report"

    @property
    def baseline_wins(self) -> bool:
        """Whether nothing beat the baseline."""
        winner, baseline = self.record.winner, self.record.baseline
        return winner is not None and baseline is not None and winner.number == baseline.number


def morning(record: StudyRecord, store: Store) -> Morning:
    """Everything on the page. Raises StorageError."""
    baseline, winner = record.baseline, record.winner
    challenger = winner
    if baseline and winner and winner.number == baseline.number:
        challenger = _closest(record, baseline)
    levels: tuple[LevelPair, ...] = ()
    interval = None
    if baseline:
        other = challenger.number if challenger else baseline.number
        levels = pairs(record, store, baseline.number, other)
        interval = overall(record, store, baseline.number, other, levels) if challenger else None
    try:
        command = export(record, winner.number, "sh") if winner else None
    except ReportError:
        command = None
    found, failed = effects(record), failure_groups(record)
    return Morning(
        record=record,
        verdict=_verdict(record, challenger, interval),
        confirmed=record.confirmed,
        interval=interval,
        challenger=challenger,
        levels=levels,
        command=command,
        history=_history(record),
        effects=found,
        failures=failed,
        hours=hours(record),
        trust=remarks(record, store),
        next_steps=_next(record, found, failed, interval),
        facts=_facts(record),
        written_at=datetime.now().astimezone(),
    )


def _closest(record: StudyRecord, baseline: Standing) -> Standing | None:
    """The other trial that was measured at most levels, the best of those."""
    others = [row for row in record.standings if row.score is not None and row.number != baseline.number
              and row.facts.reused_from is None and not row.facts.is_baseline]  # fmt: skip
    return max(others, key=lambda row: (len(row.facts.throughput), row.score or 0.0), default=None)


def _verdict(record: StudyRecord, challenger: Standing | None, interval: Interval | None) -> str:
    baseline, winner = record.baseline, record.winner
    tried = sum(row.score is not None for row in record.standings)
    if winner is None or baseline is None:
        failed = sum(row.score is None for row in record.standings)
        return (
            "There is no verdict: no baseline was measured."
            if baseline is None
            else "There is no verdict: no configuration was measured at every level."
        ) + (f" {_many(failed, 'trial')} failed." if failed else "")
    if winner.number == baseline.number:
        return (
            f"Keep the baseline: none of the {_many(tried - 1, 'other configuration')} that were measured beat it."
            if tried > 1
            else "Only the baseline was measured so far."
        )
    name = f"Trial {winner.number} ({winner.facts.label})"
    if interval is None or interval.low is None or interval.high is None:
        return (f"{name} scores {winner.score:.3f} of the baseline; how sure that is cannot be said from "
                "so short a measurement.")  # fmt: skip
    percent, low, high = (100 * (one - 1) for one in (interval.mid, interval.low, interval.high))
    sure = f"95 % interval {low:+.1f} to {high:+.1f} %" + (
        ", within one launch each" if interval.within_one_launch else ""
    )
    if interval.verdict == "faster":
        return f"{name} is {percent:.1f} % faster than the baseline over all levels ({sure})."
    return f"{name} scores best, {percent:+.1f} %, but cannot be told apart from the baseline ({sure})."


def _history(record: StudyRecord) -> tuple[Point, ...]:
    rows = {row.number: row for row in record.standings}
    points = []
    for trial in record.trials:
        if not trial.state.is_finished():
            continue
        row = rows.get(trial.number)
        label = record.label(trial.number)
        if row is None or row.score is None:
            points.append(Point(trial.number, label, None, "failed"))
            continue
        kind = (
            "baseline" if row.facts.is_baseline
            else "stopped early" if row.facts.stopped_early
            else "same as another" if row.facts.reused_from is not None
            else "measured"
        )  # fmt: skip
        points.append(Point(trial.number, label, row.score, kind))
    return tuple(points)


def _next(
    record: StudyRecord, found: Sequence[Effect], failed: Sequence[FailureGroup], interval: Interval | None
) -> tuple[str, ...]:
    steps = []
    winner, baseline = record.winner, record.baseline
    machine = [group for group in failed if group.blame == "environment"]
    if machine:
        remedy = machine[0].remedy or "look at the log of that launch"
        steps.append(f"Mend the machine first ({machine[0].cause}): {remedy}.")
    launched = min((len(record.repeats(row.number)) for row in (winner, baseline) if row), default=0)
    if winner and baseline and winner.number != baseline.number and not record.confirmed and launched < 3:
        steps.append("Launch winner and baseline again in turn, so that the interval holds: quietlane confirm.")
    if winner and interval and interval.verdict == "cannot be told apart" and winner != baseline:
        steps.append("Measure longer (more requests a level): the noise is larger than the difference.")
    own = record.trial(winner.number).params if winner else {}
    for effect in found:
        clear = [level for level in effect.ratio if effect.is_clear(level) and effect.ratio[level] > 1.0]
        missing = [name for name, value in effect.settings if own.get(name) != value]
        total = sum(record.weights.get(level, 1.0) * math.log(ratio) for level, ratio in effect.ratio.items())
        if clear and missing and total > 0 and len(steps) < 5:
            gains = ", ".join(f"{level} {100 * (effect.ratio[level] - 1):+.1f} %" for level in clear)
            steps.append(f"Try {effect.label} with the winner: it helped where it was tried ({gains}).")
    if not steps and len(record.standings) > 1:
        steps.append("Nothing stands out among these trials: widen the space, or search under another load.")
    waiting = sum(not trial.state.is_finished() for trial in record.trials)
    if waiting:
        steps.append(f"Go on: {_many(waiting, 'trial')} waiting or in hand; the same command continues the study.")
    return tuple(steps)


def _facts(record: StudyRecord) -> tuple[tuple[str, str], ...]:
    facts = [("Study", record.name)]
    if record.search:
        facts += [("Space", record.search.space), ("Model", record.search.model)]
    if record.launches:
        last = record.launches[-1]
        environment = record.environments.get(last.environment_id or 0)
        details = environment.details if environment else {}
        gpus = (details.get("accelerators") or {}).get("gpus") or []
        names = [str(gpu.get("name")) for gpu in gpus]
        hardware = [f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
        host = details.get("host") or {}
        facts.append(("Machine", ", ".join(one for one in [*hardware, str(host.get("cpu") or ""), last.host] if one)))
        driver = (details.get("accelerators") or {}).get("driver")
        told = next((one for one in reversed(record.launches) if one.server_info), last)
        versions = record.versions(told)
        shown = [f"{name} {version}" for name, version in versions.items()]
        facts.append(("Versions", ", ".join([*shown, *([f"driver {driver}"] if driver else [])]) or "not recorded"))
        first = datetime.fromtimestamp(record.launches[0].started_at).astimezone()
        facts.append(("First launch", first.strftime("%Y-%m-%d %H:%M %Z")))
    finished = [trial for trial in record.trials if trial.state.is_finished()]
    facts.append(("Trials", f"{len(finished)} finished, {_many(len(record.launches), 'launch', 'launches')}"))
    plan = record.search.plan if record.search else {}
    if plan:
        facts.append(("Load", f"temperature {plan.get('temperature')}, {plan.get('endpoint')}, " + "; ".join(
            f"c{one.get('concurrency')}: {one.get('requests')} requests of {one.get('output_tokens')} tokens"
            for one in plan.get("levels") or [])))  # fmt: skip
    return tuple(facts)


def _many(number: int, one: str, several: str | None = None) -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
