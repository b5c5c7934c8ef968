"""Who takes part in the tally."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Protocol

from optuna.samplers import GPSampler, NSGAIISampler, RandomSampler, TPESampler

from benchmarks.search.strategies.staged_grid import StagedGrid
from benchmarks.search.strategies.through_optuna import ThroughOptuna
from benchmarks.search.strategies.trace import Trace
from benchmarks.search.surfaces.surface import Surface
from search_spaces.sampler import QuietlaneSampler

OURS = "quietlane"


class Strategy(Protocol):
    """Spends `launches` on a surface; the seed is that of its decisions and of the measurements' noise."""

    @property
    def name(self) -> str: ...

    def search(self, surface: Surface, seed: int, launches: int) -> Trace: ...


def competitors() -> list[Strategy]:
    """All strategies that can run here; GPSampler only where torch is installed."""
    warnings.filterwarnings("ignore", module="optuna")
    everyone: list[Strategy] = [
        ThroughOptuna(OURS, lambda _, seed: QuietlaneSampler(seed=seed)),
        ThroughOptuna("random", lambda _, seed: RandomSampler(seed=seed), constraint=False, careful=False),
        ThroughOptuna("TPE as shipped", lambda _, seed: TPESampler(seed=seed), constraint=False, careful=False),
        ThroughOptuna("TPE constraint + rules + warm start", lambda _, seed: TPESampler(seed=seed)),
        ThroughOptuna(
            "NSGA-II constraint + rules + warm start", lambda _, seed: NSGAIISampler(seed=seed, population_size=15)
        ),
        StagedGrid(),
    ]
    if why_no_gp() is None:
        everyone.append(
            ThroughOptuna("GPSampler constraint + rules + warm start", lambda _, seed: GPSampler(seed=seed))
        )
    return everyone


def why_no_gp() -> str | None:
    """Why Optuna's GPSampler is not in the tally; None if it is."""
    return None if importlib.util.find_spec("torch") else "GPSampler needs torch, which is not installed here"
