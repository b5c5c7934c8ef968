"""How much a launch of each candidate promises: expected improvement times the probability that it runs.

Improvement is over the assignment that is probably best (not the luckiest measurement), and its uncertainty is that of
the difference: what both share cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from search_spaces.sampling.encoding import Codes
from search_spaces.sampling.feasibility import Feasibility
from search_spaces.sampling.objective import Objective

Array = NDArray[np.float64]

# A crash costs a launch and teaches nothing about speed: the probability of running counts with this power.
CAUTION = 3.0


@dataclass(frozen=True)
class Acquisition:
    """Scores candidates (larger is better). Without a model of the objective only the chance to run counts."""

    feasibility: Feasibility
    objective: Objective | None = None
    best: Codes | None = None  # one row: what is probably best so far

    def __call__(self, codes: Codes) -> Array:
        runs = self.feasibility.log_runs(codes)
        if self.objective is None or self.best is None:
            return runs
        gain, deviation = self.objective.predict(codes, against=self.best)
        return log_expected_improvement(gain, deviation) + CAUTION * runs


def log_expected_improvement(gain: Array, deviation: Array) -> Array:
    """log E[max(0, N(gain, deviation^2))], accurate far below zero."""
    z = gain / deviation
    near = np.maximum(z, -10.0)
    plain = np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi) + near * ndtr(near)
    far = np.minimum(z, -1.0)
    # phi(z) + z Phi(z) = phi(z) (1 + z sqrt(pi/2) erfcx(-z/sqrt 2)), which does not cancel to zero in log space
    factor = np.maximum(1.0 + far * np.sqrt(np.pi / 2) * erfcx(-far / np.sqrt(2)), 1e-300)
    tail = -0.5 * far**2 - 0.5 * np.log(2 * np.pi) + np.log(factor)
    return np.asarray(np.log(deviation) + np.where(z > -5.0, np.log(np.maximum(plain, 1e-300)), tail))
