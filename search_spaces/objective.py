"""The score of a configuration: its throughput at each level over the baseline's, as one number."""

from __future__ import annotations

import math
from collections.abc import Mapping


def score(
    throughput: Mapping[str, float], baseline: Mapping[str, float], weights: Mapping[str, float] | None = None
) -> float:
    """Weighted geometric mean over the baseline's levels of throughput divided by the baseline's.

    ``throughput`` and ``baseline`` are output tokens a second by level name; 1.0 is the baseline itself.
    A level at which nothing was served makes the score 0.
    """
    total, logarithm = 0.0, 0.0
    for level, reference in baseline.items():
        weight = 1.0 if weights is None else weights.get(level, 1.0)
        here = throughput.get(level, 0.0)
        if here <= 0 or reference <= 0:
            return 0.0
        total += weight
        logarithm += weight * math.log(here / reference)
    return math.exp(logarithm / total) if total else 0.0


def best_still_possible(
    so_far: Mapping[str, float],
    baseline: Mapping[str, float],
    best_seen: Mapping[str, float],
    weights: Mapping[str, float] | None = None,
    headroom: float = 1.05,
) -> float:
    """The score if every level not yet measured came out ``headroom`` times the best that was ever seen there."""
    hoped = {level: headroom * best_seen.get(level, reference) for level, reference in baseline.items()}
    return score({**hoped, **so_far}, baseline, weights)
