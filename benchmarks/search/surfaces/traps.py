"""Crashes drawn at random, as the invented families have them: bad pairs and triples, thresholds, memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.search.surfaces.space import Assignment, Parameter, SurfaceSpace


@dataclass(frozen=True)
class Traps:
    """`combinations` are sets of values that crash together; `limits` are sums of positions that must stay below."""

    space: SurfaceSpace
    combinations: tuple[tuple[tuple[str, object], ...], ...]
    corners: tuple[tuple[tuple[str, float, bool], ...], ...]
    limits: tuple[tuple[tuple[tuple[str, float], ...], float], ...]

    def __call__(self, assignment: Assignment) -> str | None:
        for combination in self.combinations:
            if all(assignment.get(name) == value and name in assignment for name, value in combination):
                return "these values do not go together: " + ", ".join(name for name, _ in combination)
        by_name = {parameter.name: parameter for parameter in self.space.parameters}
        for corner in self.corners:
            if all(
                name in assignment and (by_name[name].position(assignment[name]) >= at) == above
                for name, at, above in corner
            ):
                return "beyond a threshold: " + ", ".join(name for name, _, _ in corner)
        for terms, most in self.limits:
            used = sum(w * by_name[name].position(assignment[name]) for name, w in terms if name in assignment)
            if used > most:
                return "out of memory"
        return None


def draw(
    space: SurfaceSpace,
    rng: np.random.Generator,
    *,
    pairs: int,
    triples: int = 0,
    corners: int = 0,
    thresholds: int = 0,
    memory: int = 1,
    loose: float = 0.62,
    spare: Assignment | None = None,
) -> Traps:
    """Draw traps; none of them catches `spare` (the assignment that makes the surface worth searching)."""
    chosen = [p for p in space.parameters if p.choices]
    numeric = [p for p in space.parameters if not p.choices or all(isinstance(c, int) for c in p.choices)]
    numeric = [p for p in numeric if not p.choices or len(p.choices) >= 3]

    def combination(size: int) -> tuple[tuple[str, object], ...]:
        names = rng.permutation(len(chosen))[:size]
        return tuple((chosen[i].name, chosen[i].sample(rng)) for i in names)

    def corner(size: int) -> tuple[tuple[str, float, bool], ...]:
        names = rng.permutation(len(numeric))[:size]
        sides = [bool(rng.uniform() < 0.7) for _ in names]
        return tuple(
            (numeric[i].name, float(rng.uniform(0.5, 0.8) if above else rng.uniform(0.2, 0.5)), above)
            for i, above in zip(names, sides, strict=True)
        )

    def limit() -> tuple[tuple[tuple[str, float], ...], float]:
        size = int(rng.integers(2, 5))
        weights = tuple((numeric[i].name, float(rng.uniform(0.5, 1.0))) for i in rng.permutation(len(numeric))[:size])
        return weights, loose * sum(w for _, w in weights)

    def kept(make: Callable[[], Any], wanted: int, field: str) -> tuple[Any, ...]:
        found: list[object] = []
        for _ in range(60 * max(1, wanted)):
            if len(found) == wanted:
                break
            one = make()
            parts: dict[str, tuple[Any, ...]] = {"combinations": (), "corners": (), "limits": (), field: (one,)}
            if spare is None or Traps(space, **parts)(spare) is None:
                found.append(one)
        return tuple(found)

    combinations = kept(lambda: combination(2), pairs, "combinations")
    combinations += kept(lambda: combination(3), triples, "combinations")
    edges = kept(lambda: corner(2), corners, "corners") + kept(lambda: _extreme(numeric, rng), thresholds, "corners")
    return Traps(space, combinations, edges, kept(limit, memory, "limits"))


def _extreme(numeric: list[Parameter], rng: np.random.Generator) -> tuple[tuple[str, float, bool], ...]:
    above = bool(rng.uniform() < 0.7)
    one = numeric[int(rng.integers(len(numeric)))]
    return ((one.name, float(rng.uniform(0.75, 0.95) if above else rng.uniform(0.05, 0.25)), above),)
