"""A problem: a space, a true value for each assignment that runs, crashes, rules, and what is known to work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from benchmarks.search.surfaces.space import Assignment, SurfaceSpace

STARTS = 12
PATIENCE = 400


@dataclass(frozen=True)
class Surface:
    """`speed` gives the true value (larger is better) of an assignment that runs; `crash` why it does not run.

    `rule` is what a user would have written down beforehand: breaking it costs no launch. `known_good` are the
    configurations that the user has run before.
    """

    name: str
    seed: int
    space: SurfaceSpace
    speed: Callable[[Assignment], float]
    crash: Callable[[Assignment], str | None]
    known_good: tuple[Assignment, ...]
    rule: Callable[[Assignment], str | None] = lambda _: None
    noise: float = 0.02
    start_s: float = 240.0
    crash_s: float = 150.0
    benchmark_s: float = 120.0

    def true(self, assignment: Assignment) -> float:
        """The value without noise, 0 for what does not run."""
        return 0.0 if self.rule(assignment) or self.crash(assignment) else self.speed(assignment)

    def measure(self, assignment: Assignment, rng: np.random.Generator) -> float:
        return float(self.speed(assignment) * np.exp(rng.normal(0.0, self.noise)))

    @cached_property
    def optimum(self) -> tuple[Assignment, float]:
        """The best assignment found by long local search from many starts on the surface without noise."""
        rng = np.random.default_rng([self.seed, 77])
        starts = [{**self._any(rng), **known} for known in self.known_good]
        starts += [self._runs(rng) for _ in range(STARTS)]
        climbed = [self._climb(start, rng) for start in starts]
        best, value = max(climbed, key=lambda pair: pair[1])
        # Cross and kick the best again and again until nothing comes of it.
        idle = 0
        elite = [values for values, _ in sorted(climbed, key=lambda pair: -pair[1])[:6]]
        while idle < PATIENCE // 40:
            mate = elite[int(rng.integers(len(elite)))]
            kicked = {name: (mate if rng.uniform() < 0.3 else best)[name] for name in best}
            for parameter in rng.permutation(len(self.space.parameters))[: int(rng.integers(1, 5))]:
                kicked[self.space.parameters[parameter].name] = self.space.parameters[parameter].sample(rng)
            candidate, reached = self._climb(kicked, rng)
            idle += 1
            if reached > value * (1 + 1e-9):
                best, value, idle = candidate, reached, 0
        return self.space.trimmed(best), value

    def share_of_random_crashes(self, draws: int = 400) -> float:
        """How many random assignments that break no rule crash."""
        rng = np.random.default_rng([self.seed, 5])
        drawn = [self.space.sample(rng) for _ in range(draws)]
        lawful = [assignment for assignment in drawn if not self.rule(assignment)]
        return sum(self.crash(assignment) is not None for assignment in lawful) / max(1, len(lawful))

    def _any(self, rng: np.random.Generator) -> Assignment:
        return {parameter.name: parameter.sample(rng) for parameter in self.space.parameters}

    def _runs(self, rng: np.random.Generator) -> Assignment:
        for _ in range(PATIENCE):
            values = self._any(rng)
            if self.true(self.space.trimmed(values)) > 0:
                return values
        return {**self._any(rng), **self.known_good[0]}

    def _climb(self, values: Assignment, rng: np.random.Generator) -> tuple[Assignment, float]:
        best, value = values, self.true(self.space.trimmed(values))
        improved = True
        while improved:
            improved = False
            for neighbour in self.space.neighbours(best):
                reached = self.true(self.space.trimmed(neighbour))
                if reached > value * (1 + 1e-9):
                    best, value, improved = neighbour, reached, True
        return best, value


def modest(
    surface_space: SurfaceSpace, true: Callable[[Assignment], float], rng: np.random.Generator, wanted: int
) -> tuple[Assignment, ...]:
    """Known-good configurations as a user has them: they run and are middling (30th to 70th percentile)."""
    drawn: list[tuple[float, Assignment]] = []
    for _ in range(4000):
        assignment = surface_space.sample(rng)
        value = true(assignment)
        if value > 0:
            drawn.append((value, assignment))
        if len(drawn) >= 120:
            break
    drawn.sort(key=lambda pair: pair[0])
    middle = drawn[int(0.3 * len(drawn)) : max(int(0.7 * len(drawn)), int(0.3 * len(drawn)) + wanted)]
    picked: Sequence[int] = rng.permutation(len(middle))[:wanted].tolist()
    return tuple(middle[index][1] for index in picked)
