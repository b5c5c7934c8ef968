"""Optuna's distributions as axes that the models can compute with.

An assignment becomes a row of codes, one a parameter: the level's index where the parameter has few values, the
position between 0 and 1 where it has many, NaN where the parameter does not take part in the assignment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

# A number with at most this many possible values is a list of levels; with more it is a continuous position.
MOST_LEVELS = 16
# A continuous position is cut into this many bins where a model needs levels.
BINS = 8

Codes = NDArray[np.float64]
Levels = NDArray[np.int64]


@dataclass(frozen=True)
class Axis:
    """One parameter: its levels in order (those without one last), or a continuous range when `values` is empty."""

    name: str
    distribution: BaseDistribution
    values: tuple[Any, ...]
    positions: NDArray[np.float64]  # of the ordered levels, between 0 and 1

    @property
    def continuous(self) -> bool:
        return not self.values

    @property
    def ordered(self) -> int:
        """How many leading levels have an order."""
        return BINS if self.continuous else len(self.positions)

    @property
    def levels(self) -> int:
        return BINS if self.continuous else len(self.values)

    def code(self, value: Any) -> float:
        """The code of a value; a number outside the range takes the nearest code, an unknown choice NaN."""
        if self.continuous:
            return _unit(self.distribution, float(value))
        for index, known in enumerate(self.values):
            if type(known) is type(value) and (known == value or known is value):
                return float(index)
        for index, known in enumerate(self.values):
            if known == value:
                return float(index)
        number = as_number(value)
        if number is None or not self.ordered:
            return math.nan
        known_numbers = [as_number(v) or 0.0 for v in self.values[: self.ordered]]
        return float(min(range(self.ordered), key=lambda i: abs(known_numbers[i] - number)))

    def value(self, code: float) -> Any:
        """The value of a code, as the distribution would give it."""
        if self.continuous:
            return _from_unit(self.distribution, code)
        return self.values[int(code)]

    def snapped(self, positions: NDArray[np.float64]) -> NDArray[np.float64]:
        """The continuous positions that values of the distribution have, nearest to `positions`."""
        inside = np.clip(positions, 0.0, 1.0)
        one = self.distribution
        if isinstance(one, FloatDistribution) and one.step is None:
            return inside
        assert isinstance(one, FloatDistribution | IntDistribution)
        low, high = _bounds(one)
        step = one.step or 1
        number = low + inside * (high - low)
        number = np.exp(number) if one.log else number
        number = np.minimum(one.low + np.round((number - one.low) / step) * step, one.high)
        number = np.log(np.maximum(number, 1e-300)) if one.log else number
        return np.asarray((number - low) / (high - low) if high > low else np.full_like(inside, 0.5))


def axis(name: str, distribution: BaseDistribution) -> Axis:
    """Read a distribution: choices that are numbers have an order, those that are not (`None`, "auto") have none."""
    if isinstance(distribution, CategoricalDistribution):
        numbers = [(as_number(choice), choice) for choice in distribution.choices]
        ordered = sorted(((n, c) for n, c in numbers if n is not None), key=lambda pair: pair[0])
        if len(ordered) < 3 or len({n for n, _ in ordered}) < len(ordered):
            return Axis(name, distribution, tuple(distribution.choices), np.empty(0))
        rest = [c for n, c in numbers if n is None]
        positions = np.linspace(0.0, 1.0, len(ordered))
        return Axis(name, distribution, (*(c for _, c in ordered), *rest), positions)
    grid = _grid(distribution)
    if not grid:
        return Axis(name, distribution, (), np.empty(0))
    positions = np.array([_unit(distribution, float(v)) for v in grid])
    return Axis(name, distribution, tuple(grid), positions)


def axes_of(distributions: Iterable[Mapping[str, BaseDistribution]]) -> list[Axis]:
    """The axes of all parameters seen, the newest distribution of each; a parameter with one value is left out."""
    newest: dict[str, BaseDistribution] = {}
    for seen in distributions:
        newest.update(seen)
    return [axis(name, distribution) for name, distribution in newest.items() if not distribution.single()]


def encode(axes: Sequence[Axis], assignments: Sequence[Mapping[str, Any]]) -> Codes:
    """Assignments as rows of codes."""
    codes = np.full((len(assignments), len(axes)), math.nan)
    for row, assignment in enumerate(assignments):
        for column, one in enumerate(axes):
            if one.name in assignment:
                codes[row, column] = one.code(assignment[one.name])
    return codes


def levels_of(axes: Sequence[Axis], codes: Codes) -> Levels:
    """Codes as level indices; continuous positions by bin; an inactive parameter has the index after the last level."""
    counts = np.array([one.levels for one in axes])
    continuous = np.array([one.continuous for one in axes], dtype=bool)
    inactive = np.isnan(codes)
    known = np.where(inactive, 0.0, codes)
    levels = np.where(continuous, np.floor(np.clip(known, 0.0, 1.0) * BINS), known).astype(np.int64)
    levels = np.minimum(levels, counts - 1)
    return np.where(inactive, counts, levels)


def keys_of(codes: Codes) -> list[bytes]:
    """One hashable key an assignment, equal when the assignments are."""
    rounded = np.round(np.where(np.isnan(codes), -1.0, codes), 9) + 0.0
    return [row.tobytes() for row in np.ascontiguousarray(rounded)]


def as_number(choice: Any) -> float | None:
    """The number that a choice is or spells ("8" is 8); None for booleans, words and non-finite numbers."""
    if isinstance(choice, bool) or not isinstance(choice, int | float | str):
        return None
    try:
        number = float(choice)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _grid(distribution: BaseDistribution) -> list[Any]:
    if isinstance(distribution, IntDistribution):
        count = (distribution.high - distribution.low) // distribution.step + 1
        if count <= MOST_LEVELS:
            return [distribution.low + i * distribution.step for i in range(count)]
    elif isinstance(distribution, FloatDistribution) and distribution.step is not None:
        count = round((distribution.high - distribution.low) / distribution.step) + 1
        if count <= MOST_LEVELS:
            return [_float_on_grid(distribution, i) for i in range(count)]
    return []


def _float_on_grid(distribution: FloatDistribution, index: int) -> float:
    assert distribution.step is not None
    return float(min(distribution.low + index * distribution.step, distribution.high))


def _bounds(distribution: BaseDistribution) -> tuple[float, float]:
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = float(distribution.low), float(distribution.high)
    return (math.log(low), math.log(high)) if distribution.log else (low, high)


def _unit(distribution: BaseDistribution, value: float) -> float:
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = _bounds(distribution)
    if high <= low:
        return 0.5
    number = math.log(max(value, 1e-300)) if distribution.log else value
    return min(1.0, max(0.0, (number - low) / (high - low)))


def _from_unit(distribution: BaseDistribution, position: float) -> float | int:
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = _bounds(distribution)
    number = low + min(1.0, max(0.0, position)) * (high - low)
    number = math.exp(number) if distribution.log else number
    number = min(float(distribution.high), max(float(distribution.low), number))
    if isinstance(distribution, IntDistribution):
        steps = round((number - distribution.low) / distribution.step)
        return int(min(distribution.high, distribution.low + steps * distribution.step))
    if distribution.step is not None:
        return _float_on_grid(distribution, round((number - distribution.low) / distribution.step))
    return number
