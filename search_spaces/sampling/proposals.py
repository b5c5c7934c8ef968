"""Candidates: full assignments made by mutating and crossing what worked, then improved one parameter at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces.sampling.activity import Activity
from search_spaces.sampling.encoding import Axis, Codes, keys_of

Array = NDArray[np.float64]

MUTANTS, CROSSINGS, STRANGERS = 240, 120, 60
CLIMBERS, CLIMBS = 4, 5
# A parameter with more levels than this offers a random choice of them to the climb.
MOST_NEIGHBOURS = 16


@dataclass(frozen=True)
class Proposer:
    """Makes candidates. `tried` holds the keys of all assignments launched; `fixed` what the caller has decided."""

    axes: Sequence[Axis]
    activity: Activity
    fixed: Mapping[int, float]
    tried: frozenset[bytes]
    rng: np.random.Generator

    def best(self, leaders: Codes, others: Codes, value: Callable[[Codes], Array]) -> Codes:
        """The assignment (one row, values for inactive parameters too) with the largest value among those not tried.

        `leaders` are assignments to start from, best first; `others` lend their values to crossings.
        """
        pool = self._pool(leaders, others)
        scores = self._value(pool, value)
        for _ in range(CLIMBS):
            top = _best_distinct(pool, scores, CLIMBERS)
            near = np.concatenate([self._neighbours(pool[row]) for row in top])
            near_scores = self._value(near, value)
            before = scores[top[0]]
            pool, scores = np.concatenate([pool[top], near]), np.concatenate([scores[top], near_scores])
            if scores.max() <= before + 1e-9:
                break
        return pool[[int(np.argmax(scores))]]

    def _value(self, pool: Codes, value: Callable[[Codes], Array]) -> Array:
        masked = self.activity.mask(pool)
        scores = value(masked)
        known = np.array([key in self.tried for key in keys_of(masked)], dtype=bool)
        return np.where(known, -1e6 + np.minimum(scores, 0.0) * 1e-3, scores)

    def _pool(self, leaders: Codes, others: Codes) -> Codes:
        strangers = self.random(STRANGERS)
        if not len(leaders):
            return self._fix(np.concatenate([strangers, self.random(3 * STRANGERS)]))
        # The first leaders are chosen more often.
        rank = np.minimum(self.rng.geometric(0.35, MUTANTS) - 1, len(leaders) - 1)
        mutants = self._fill(leaders[rank])
        changes = np.minimum(self.rng.geometric(0.3, MUTANTS), len(self.axes))
        fresh = self.random(MUTANTS)
        for row, count in enumerate(changes):
            columns = self.rng.permutation(len(self.axes))[:count]
            mutants[row, columns] = fresh[row, columns]
        mothers = self._fill(leaders[self.rng.integers(len(leaders), size=CROSSINGS)])
        fathers = self._fill(others[self.rng.integers(len(others), size=CROSSINGS)])
        share = self.rng.uniform(0.1, 0.6, size=(CROSSINGS, 1))
        crossings = np.where(self.rng.uniform(size=mothers.shape) < share, fathers, mothers)
        return self._fix(np.concatenate([mutants, crossings, strangers]))

    def random(self, count: int) -> Codes:
        """Assignments drawn uniformly, every parameter given a value."""
        codes = np.empty((count, len(self.axes)))
        for column, one in enumerate(self.axes):
            if one.continuous:
                codes[:, column] = one.snapped(self.rng.uniform(size=count))
            else:
                codes[:, column] = self.rng.integers(one.levels, size=count)
        return codes

    def _fill(self, codes: Codes) -> Codes:
        """Give inactive parameters a value, so that they have one should a mutation switch them on."""
        filled = codes.copy()
        missing = np.isnan(filled)
        if missing.any():
            filled[missing] = self.random(len(filled))[missing]
        return filled

    def _fix(self, codes: Codes) -> Codes:
        for column, code in self.fixed.items():
            codes[:, column] = code
        return codes

    def _neighbours(self, codes: Codes) -> Codes:
        """All assignments that differ from this one in one parameter (a sample of them where there are very many)."""
        columns: list[int] = []
        options: list[float] = []
        for column, one in enumerate(self.axes):
            if column in self.fixed:
                continue
            if one.continuous:
                steps = codes[column] + self.rng.normal(0.0, 0.15, 4)
                found = one.snapped(np.concatenate([steps, self.rng.uniform(size=2), [0.0, 1.0]])).tolist()
            elif one.levels > MOST_NEIGHBOURS:
                found = [float(level) for level in self.rng.integers(one.levels, size=MOST_NEIGHBOURS)]
            else:
                found = [float(level) for level in range(one.levels)]
            options += found
            columns += [column] * len(found)
        rows = np.repeat(codes[None, :], len(columns), axis=0)
        rows[np.arange(len(columns)), columns] = options
        return rows


def _best_distinct(pool: Codes, scores: Array, count: int) -> list[int]:
    """The rows with the largest scores, each assignment once."""
    seen: dict[bytes, int] = {}
    for row in np.argsort(-scores, kind="stable"):
        seen.setdefault(pool[row].tobytes(), int(row))
        if len(seen) == count:
            break
    return list(seen.values())
