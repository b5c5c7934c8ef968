"""When a conditional parameter takes part, learnt from the trials in which it did.

A define-by-run space says nothing in advance: that `draft_tokens` exists only with `speculation=on` shows in the
history alone. Each conditional parameter is explained by few other parameters and the levels that they have when it
takes part; a level never seen is taken to let it take part, so that a new branch is proposed with values for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces.sampling.encoding import Axis, Codes, Levels, levels_of

MOST_CONDITIONS = 3


@dataclass(frozen=True)
class Condition:
    """`child` takes part where `parent` has one of the levels of `allows` (indexed by level, inactive last)."""

    child: int
    parent: int
    allows: NDArray[np.bool_]


@dataclass(frozen=True)
class Activity:
    """The conditions of a space; `mask` applies them."""

    axes: Sequence[Axis]
    conditions: tuple[Condition, ...]

    def mask(self, codes: Codes) -> Codes:
        """The same assignments with NaN for each parameter that would not take part."""
        masked = codes.copy()
        for _ in range(1 + bool(self.conditions)):  # twice: a child may be the parent of a grandchild
            levels = levels_of(self.axes, masked)
            for condition in self.conditions:
                masked[~condition.allows[levels[:, condition.parent]], condition.child] = math.nan
        return masked

    def parents(self) -> dict[int, list[int]]:
        """The parameters that each parent switches."""
        children: dict[int, list[int]] = {}
        for condition in self.conditions:
            children.setdefault(condition.parent, []).append(condition.child)
        return children


def learn(axes: Sequence[Axis], codes: Codes) -> Activity:
    """Explain each parameter that was missing in some trial and present in another."""
    levels = levels_of(axes, codes)
    active = ~np.isnan(codes)
    conditions: list[Condition] = []
    for child in range(len(axes)):
        if active[:, child].all() or not active[:, child].any():
            continue
        conditions += _explain(axes, levels, active, child)
    return Activity(axes, tuple(conditions))


def _explain(axes: Sequence[Axis], levels: Levels, active: NDArray[np.bool_], child: int) -> list[Condition]:
    with_child, unexplained = active[:, child], ~active[:, child]
    found: list[Condition] = []
    for _ in range(MOST_CONDITIONS):
        best: tuple[tuple[float, ...], int, NDArray[np.bool_]] | None = None
        for parent in range(len(axes)):
            if parent == child:
                continue
            allows = np.zeros(axes[parent].levels + 1, dtype=bool)
            allows[levels[with_child, parent]] = True
            wrong = int(allows[levels[unexplained, parent]].sum())
            # Fewest wrong answers; then the parameter that is always there; then the smallest one; then the first.
            order = (wrong, float((~active[:, parent]).sum()), axes[parent].levels, parent)
            if best is None or order < best[0]:
                best = (order, parent, allows)
        if best is None or best[0][0] >= unexplained.sum():
            break
        _, parent, allows = best
        found.append(Condition(child, parent, _guess_unseen(axes[parent], levels[:, parent], allows)))
        unexplained = unexplained & allows[levels[:, parent]]
        if not unexplained.any():
            break
    return found


def _guess_unseen(parent: Axis, seen_levels: Levels, allows: NDArray[np.bool_]) -> NDArray[np.bool_]:
    seen = np.unique(seen_levels)
    ordered = seen[seen < parent.ordered]
    guessed = allows.copy()
    for level in range(parent.levels):
        if level in seen:
            continue
        near = ordered[np.abs(ordered - level).argmin()] if level < parent.ordered and len(ordered) else None
        guessed[level] = True if near is None else allows[near]
    return guessed
