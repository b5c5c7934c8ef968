"""Who is launched again before a verdict: the probable best, whoever may be as good, one of each kind, the baseline."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optuna

from benchmark.statistics import relative_half_width
from engine.configuration import Configuration
from flows.ending import measured_baseline, probable_best
from flows.opening import Search
from flows.refused import Refused
from flows.voice import say
from report.leaderboard import Standing, standings
from search_spaces.space import Assignment

# What two launches of one configuration differ by at least, as a share, beyond the noise within each.
_LAUNCH_NOISE = 0.02


@dataclass(frozen=True)
class Finalist:
    """One configuration to launch again; ``number`` is its trial, ``None`` for a baseline that was never one."""

    number: int | None
    label: str
    configuration: Configuration
    is_baseline: bool
    why: str
    resolved: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """``baseline`` or ``trial 7``."""
        return "baseline" if self.is_baseline else f"trial {self.number}"

    @property
    def algorithm(self) -> str:
        """Of speculation, ``off`` without."""
        return algorithm_of(self.configuration)


def algorithm_of(configuration: Configuration) -> str:
    """The algorithm of speculation that a configuration asks for, ``off`` without."""
    return str(configuration.flags.get("--speculative-algorithm") or "off")


def overlapping(scores: Sequence[float], half_widths: Sequence[float], best: int) -> list[int]:
    """Places of the scores whose interval reaches up to that of ``best``, the highest first and ``best`` before all.

    ``half_widths`` are shares of the score.
    """
    reach = scores[best] / (1 + half_widths[best])
    order = sorted(range(len(scores)), key=lambda place: (place != best, -scores[place]))
    return [place for place in order if place == best or scores[place] * (1 + half_widths[place]) >= reach]


def choose(search: Search, most: int, trials: Sequence[int] = (), *, each_algorithm: bool = True) -> list[Finalist]:
    """The finalists, the baseline first. ``trials`` names them instead, by number.

    At most ``most`` are chosen for their score; the best of each algorithm of speculation that is not among them comes
    beside them, so that every algorithm gets its verdict. Raises Refused where there is nothing to confirm.
    """
    rows = [
        row
        for row in standings(search.study)
        if row.score is not None
        and not row.facts.stopped_early
        and row.facts.reused_from is None
        and row.facts.environment_id == search.environment_id
    ]
    known = measured_baseline(search, rows)
    rivals = [row for row in rows if not row.facts.is_baseline]
    chosen = _named(search, rivals, trials) if trials else _by_score(search, rows, rivals, most)
    finalists = [
        Finalist(known.number if known else None, "", search.space.baseline(), True, "the baseline"),
        *(found for row, why in chosen if (found := _finalist(search, row, why))),
    ]
    if each_algorithm and not trials:
        finalists += _one_of_each(search, rivals, finalists)
    if len(finalists) < 2:
        raise Refused(
            f"study {search.study_name} holds no working configuration beside the baseline that was measured here at "
            "every level: run quietlane tune first"
        )
    return [_resolved(search, one) for one in finalists]


def _named(search: Search, rivals: Sequence[Standing], trials: Sequence[int]) -> list[tuple[Standing, str]]:
    by_number = {row.number: row for row in rivals}
    for number in trials:
        if number not in by_number:
            raise Refused(
                f"trial {number} of study {search.study_name} cannot be confirmed (it failed, was stopped early, "
                "shares a result with another, is the baseline, or was measured elsewhere): name another with --trial"
            )
    return [(by_number[number], "named") for number in dict.fromkeys(trials)]


def _by_score(
    search: Search, rows: list[Standing], rivals: Sequence[Standing], most: int
) -> list[tuple[Standing, str]]:
    if not rivals:
        return []
    probable = probable_best(search, rows)
    best = next((row for row in rivals if probable and row.number == probable.number), rivals[0])
    scores = [row.score or 0.0 for row in rivals]
    widths = [_half_width(search, row) for row in rivals]
    places = overlapping(scores, widths, rivals.index(best))
    whys = ["probably the best", *["its score may be as good as the best"] * len(rivals)]
    return [(rivals[place], why) for place, why in zip(places[:most], whys, strict=False)]


def _half_width(search: Search, row: Standing) -> float:
    """Half of the interval of a score measured in one launch, as a share of it."""
    weights = search.board.weights
    total = squares = 0.0
    for record in search.store.measurements(launch_id=row.facts.launch_id) if row.facts.launch_id else ():
        whole = dataclasses.replace(record.measurement, samples=search.store.samples(record.id))
        weight = weights.get(whole.level.name, 1.0)
        total += weight
        squares += (weight * (relative_half_width(whole) or 0.0)) ** 2
    within = math.sqrt(squares) / total if total else 0.0
    return math.hypot(within, _LAUNCH_NOISE)


def _assignment(search: Search, number: int) -> Assignment | None:
    """The assignment of an earlier trial, ``None`` where the space has changed so that it no longer holds it."""
    trial = search.study.get_trials(deepcopy=False)[number]
    try:
        return search.space.suggest(optuna.trial.FixedTrial(trial.params))
    except ValueError:
        return None


def _finalist(search: Search, row: Standing, why: str) -> Finalist | None:
    assignment = _assignment(search, row.number)
    if assignment is None:
        say(f"Trial {row.number} is left out: the space {search.space.name} no longer allows its values.", warning=True)
        return None
    return Finalist(row.number, row.facts.label, search.space.configuration(assignment), False, why)


def _one_of_each(search: Search, rivals: Sequence[Standing], finalists: Sequence[Finalist]) -> list[Finalist]:
    """The best of each algorithm that no finalist has."""
    there = {one.algorithm for one in finalists}
    added: list[Finalist] = []
    for row in rivals:  # the best first
        assignment = _assignment(search, row.number)
        if assignment is None:
            continue
        configuration = search.space.configuration(assignment)
        algorithm = algorithm_of(configuration)
        if algorithm not in there:
            there.add(algorithm)
            why = f"the best with speculation {algorithm}"
            added.append(Finalist(row.number, row.facts.label, configuration, False, why))
    return added


def _resolved(search: Search, finalist: Finalist) -> Finalist:
    if search.preflight is None:
        return finalist
    return dataclasses.replace(finalist, resolved=search.preflight.check(finalist.configuration).resolved)
