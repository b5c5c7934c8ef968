"""One row a search and checkpoint, and how rows become figures."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import mean, median, stdev

from benchmarks.search.strategies.trace import Trace

# A named winner this far below the best configuration launched is a false one.
FALSE_WINNER = 0.02


@dataclass(frozen=True)
class Outcome:
    """What was reached after `launches`: `reached` is the true value of the incumbent in percent of the optimum."""

    family: str
    seed: int
    strategy: str
    launches: int
    reached: float
    best_launched: float  # of all configurations launched, the best true value, percent of the optimum
    crashed: float  # percent of launches
    engine_h: float
    ask_s: float  # processor time of all asks
    false_winner: bool


def judge(trace: Trace, strategy: str, checkpoints: Sequence[int], optimum: float) -> list[Outcome]:
    """The outcomes of one search at each checkpoint."""
    outcomes = []
    for launches in checkpoints:
        named = trace.named.get(launches)
        reached = 100.0 * trace.surface.true(named) / optimum if named else 0.0
        launched = [trace.surface.true(assignment) for assignment, _ in trace.launched[:launches]]
        best = 100.0 * max(launched, default=0.0) / optimum
        outcomes.append(
            Outcome(
                family=trace.surface.name,
                seed=trace.surface.seed,
                strategy=strategy,
                launches=launches,
                reached=round(reached, 3),
                best_launched=round(best, 3),
                crashed=round(100.0 * trace.crashes(launches) / launches, 2),
                engine_h=round(trace.engine_s(launches) / 3600.0, 3),
                ask_s=round(trace.seconds_asking, 2),
                false_winner=reached < (1.0 - FALSE_WINNER) * best,
            )
        )
    return outcomes


def append(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Add rows to the CSV; it gets its header with the first ones."""
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Outcome)])
        if new:
            writer.writeheader()
        writer.writerows(asdict(outcome) for outcome in outcomes)


def read(path: Path) -> list[Outcome]:
    """All rows, none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [
            Outcome(
                family=row["family"],
                seed=int(row["seed"]),
                strategy=row["strategy"],
                launches=int(row["launches"]),
                reached=float(row["reached"]),
                best_launched=float(row["best_launched"]),
                crashed=float(row["crashed"]),
                engine_h=float(row["engine_h"]),
                ask_s=float(row["ask_s"]),
                false_winner=row["false_winner"] == "True",
            )
            for row in csv.DictReader(file)
        ]


@dataclass(frozen=True)
class Figures:
    """Over seeds, at one checkpoint."""

    mean: float
    median: float
    worst: float
    crashed: float
    engine_h: float
    false_winners: float  # percent of seeds
    seeds: int


def figures(outcomes: Sequence[Outcome]) -> Figures:
    reached = [outcome.reached for outcome in outcomes]
    return Figures(
        mean=mean(reached),
        median=median(reached),
        worst=min(reached),
        crashed=mean(outcome.crashed for outcome in outcomes),
        engine_h=mean(outcome.engine_h for outcome in outcomes),
        false_winners=100.0 * mean(float(outcome.false_winner) for outcome in outcomes),
        seeds=len(reached),
    )


@dataclass(frozen=True)
class Paired:
    """How far one strategy is ahead of another on the same surfaces and seeds, in percent of the optimum."""

    ahead: float
    low: float  # 95 % interval of the mean difference
    high: float
    won: float  # percent of seeds


def paired(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> Paired | None:
    """None with fewer than two seeds in common."""
    other = {outcome.seed: outcome.reached for outcome in theirs}
    differences = [outcome.reached - other[outcome.seed] for outcome in ours if outcome.seed in other]
    if len(differences) < 2:
        return None
    middle, half = mean(differences), 1.96 * stdev(differences) / math.sqrt(len(differences))
    return Paired(middle, middle - half, middle + half, 100.0 * mean(float(d > 0) for d in differences))
