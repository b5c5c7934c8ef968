"""Comparing two configurations after every round of launches without raising the chance of a false alarm. Pure.

Whoever looks after each launch and stops at the first difference is fooled far more often than in 5 % of cases. So the
5 % are spent, a share a look: after n of at most N launches of each side ``ln(1 + (e - 1) n / N)`` of it has been spent
(K. K. G. Lan and D. L. DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70, 1983, the function
that resembles Pocock's; launches are dear, and it allows half of the error at the first look). What is newly spent is
the whole error of that look's interval: by Bonferroni's inequality all looks together then err in at most 5 % of cases,
however they depend on each other. The first look that decides stands, and later launches do not undo it.

Several comparisons in one report share the error in the same way, an equal part each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from benchmark.statistics import Interval, ratio_interval

# Two launches of each side say almost nothing of their spread (t with one or two degrees of freedom).
FIRST_LOOK = 3
# Launches of each configuration after which nothing more is spent.
MOST_LAUNCHES = 8
ERROR = 0.05
# Two configurations whose interval lies within this ratio are as good as equal: looking on would only cost launches.
NEGLIGIBLE = 0.01


@dataclass(frozen=True)
class Comparison:
    """The ratio of one configuration to another, as far as it is known.

    Attributes:
        interval: of the ratio; wider than a plain 95 % interval, since it has been looked at more than once.
        launches: of each side that the interval rests on.
        decided: faster, slower, or so close that no more launches are worth it.
    """

    interval: Interval
    launches: int
    decided: bool

    def sentence(self) -> str:
        """``faster by 3.1 % (1.2 to 5.0)``, ``slower by ...`` or ``cannot be told apart (...)``."""
        return self.interval.sentence()


def share_spent(launches: int, most: int = MOST_LAUNCHES) -> float:
    """The share of the error that may be spent by so many launches of each side; 1 from ``most`` on."""
    return math.log1p((math.e - 1) * min(launches / most, 1.0))


def confidence_at(launches: int, *, most: int = MOST_LAUNCHES, error: float = ERROR) -> float:
    """Confidence of the interval of the look after so many launches of each side.

    A look before the planned first one happens only where the launches ended there: it is the first and the last.
    """
    before = share_spent(launches - 1, most) if launches > FIRST_LOOK else 0.0
    return 1.0 - error * (share_spent(launches, most) - before)


def compare(
    first: Sequence[float],
    second: Sequence[float],
    *,
    most: int = MOST_LAUNCHES,
    error: float = ERROR,
    negligible: float = NEGLIGIBLE,
) -> Comparison:
    """The first side against the second, from a figure a launch in the order of the launches.

    Only as many launches as both sides have, and at most ``most``, are used. Raises ValueError where a side has none.
    """
    whole = min(len(first), len(second), max(most, 1))
    looks = range(min(FIRST_LOOK, whole), whole + 1)
    for launches in looks:
        confidence = confidence_at(launches, most=most, error=error)
        interval = _look(tuple(first[:launches]), tuple(second[:launches]), confidence)
        told_apart = interval.verdict in ("faster", "slower")
        if launches >= FIRST_LOOK and (told_apart or _negligible(interval, negligible)):
            return Comparison(interval, launches, decided=True)
    return Comparison(interval, whole, decided=interval.verdict in ("faster", "slower"))


@lru_cache(maxsize=4096)
def _look(first: tuple[float, ...], second: tuple[float, ...], confidence: float) -> Interval:
    """One look; those of earlier rounds are asked for again in every round."""
    return ratio_interval(first, second, confidence)


def _negligible(interval: Interval, negligible: float) -> bool:
    if interval.low is None or interval.high is None:
        return False
    return interval.low >= 1 / (1 + negligible) and interval.high <= 1 + negligible
