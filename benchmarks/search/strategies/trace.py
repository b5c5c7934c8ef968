"""What a strategy did on a surface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.search.surfaces.space import Assignment
from benchmarks.search.surfaces.surface import Surface


@dataclass
class Trace:
    """Launches in order, and who was named as best after each number of launches of interest."""

    surface: Surface
    rng: np.random.Generator  # of the measurements' noise
    launched: list[tuple[Assignment, float | None]] = field(default_factory=list)  # measured value, None for a crash
    named: dict[int, Assignment | None] = field(default_factory=dict)
    seconds_asking: float = 0.0  # of processor time

    def launch(self, assignment: Assignment) -> float | None:
        """Launch: the measured value, None when it crashes (a broken rule that nobody checked crashes too)."""
        broken = self.surface.rule(assignment) or self.surface.crash(assignment)
        value = None if broken else self.surface.measure(assignment, self.rng)
        self.launched.append((assignment, value))
        return value

    @property
    def luckiest(self) -> Assignment | None:
        """The assignment with the largest measurement."""
        ran = [(value, index) for index, (_, value) in enumerate(self.launched) if value is not None]
        return self.launched[max(ran)[1]][0] if ran else None

    def crashes(self, launches: int) -> int:
        return sum(value is None for _, value in self.launched[:launches])

    def engine_s(self, launches: int) -> float:
        """Seconds that an engine would have run."""
        crashed = self.crashes(launches)
        ran = min(launches, len(self.launched)) - crashed
        return ran * (self.surface.start_s + self.surface.benchmark_s) + crashed * self.surface.crash_s


def begin(surface: Surface, seed: int) -> Trace:
    """A trace whose noise is the same for every strategy with this seed."""
    return Trace(surface, np.random.default_rng([seed, 99]))


CHECKPOINTS: Sequence[int] = (15, 30, 60, 150)
