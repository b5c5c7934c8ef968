"""What a configuration is worth: an additive Gaussian process on log(value).

Throughputs multiply, so their logarithms nearly add: the kernel is a sum over parameters, each with a scale learnt from
the data, plus weak terms for pairs of parameters (an elementary symmetric polynomial of the single kernels, as in
Duvenaud, Nickisch and Rasmussen, "Additive Gaussian Processes", 2011). Equal levels correlate; neighbours in an order
correlate too; a parameter that does not take part is a level of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from search_spaces.sampling.encoding import Axis, Codes, levels_of

Array = NDArray[np.float64]

SMOOTHNESS = 0.4  # length scale of an ordered parameter, in shares of its range
SMOOTH_SHARE = 0.7  # how much of an ordered parameter's effect is smooth in the order
CONSTANT = 10.0  # variance of the overall level, in units of the spread's variance
PAIR_FLOOR = 0.15  # the share of an average parameter that takes part in pairs without an effect of its own
EARLIER_AGREEMENT = 0.9  # correlation between what an earlier study saw and what this one would see
EARLIER_NOISE = 2.0
JITTER = 1e-8


@dataclass(frozen=True)
class Kernels:
    """The correlation of two assignments along each axis."""

    axes: Sequence[Axis]

    def along(self, column: int, left: Codes, right: Codes) -> Array:
        one = self.axes[column]
        a, b = left[:, column], right[:, column]
        if one.continuous:
            with np.errstate(invalid="ignore"):
                near = np.exp(-0.5 * ((a[:, None] - b[None, :]) / SMOOTHNESS) ** 2)
            return np.asarray(np.where(np.isnan(near), np.isnan(a)[:, None] & np.isnan(b)[None, :], near), dtype=float)
        first = np.where(np.isnan(a), one.levels, a).astype(int)
        second = np.where(np.isnan(b), one.levels, b).astype(int)
        if one.levels > 64:
            return np.asarray(first[:, None] == second[None, :], dtype=float)
        return _table(one)[first[:, None], second[None, :]]


@dataclass(frozen=True)
class Scales:
    """Hyperparameters, all in units of the objective's spread."""

    single: Array  # standard deviation of each parameter's effect
    pair: float  # variance of the pair terms
    noise: float  # standard deviation of a measurement

    def combine(self, singles: Array) -> Array:
        """The kernel from the kernels along each axis (axis first)."""
        variance = self.single**2
        weights = self.pair_weights()
        total = np.tensordot(variance, singles, 1)
        first = np.tensordot(weights, singles, 1)
        second = np.tensordot(weights**2, singles**2, 1)
        return np.asarray(CONSTANT + total + self.pair * 0.5 * (first**2 - second))

    def pair_weights(self) -> Array:
        return np.asarray(self.single**2 + PAIR_FLOOR / len(self.single))

    def variance(self) -> float:
        """Prior variance of one assignment."""
        weights = self.pair_weights()
        return float(CONSTANT + (self.single**2).sum() + self.pair * 0.5 * (weights.sum() ** 2 - (weights**2).sum()))


@dataclass(frozen=True)
class Objective:
    """A fitted model; means and covariances are in the units of the scores given."""

    kernels: Kernels
    scales: Scales
    codes: Codes
    centre: float
    spread: float
    factor: Array
    alpha: Array
    earlier: NDArray[np.bool_]

    def mean(self, codes: Codes) -> Array:
        return self.predict(codes)[0]

    def predict(self, codes: Codes, against: Codes | None = None) -> tuple[Array, Array]:
        """Posterior mean and standard deviation; with `against` (one row) the deviation of the difference from it."""
        cross = self._cross(codes)
        mean = self.centre + self.spread * (cross @ self.alpha)
        half = solve_triangular(self.factor, cross.T, lower=True)
        variance = self.scales.variance() - (half**2).sum(axis=0)
        if against is not None:
            other = solve_triangular(self.factor, self._cross(against).T, lower=True)[:, 0]
            joint = self._between(codes, against)[:, 0] - half.T @ other
            variance = variance + self.scales.variance() - other @ other - 2.0 * joint
        return mean, self.spread * np.sqrt(np.maximum(variance, 1e-12))

    def _between(self, left: Codes, right: Codes) -> Array:
        return self.scales.combine(
            np.stack([self.kernels.along(column, left, right) for column in range(len(self.kernels.axes))])
        )

    def _cross(self, codes: Codes) -> Array:
        cross = self._between(codes, self.codes)
        cross[:, self.earlier] *= EARLIER_AGREEMENT
        return cross


def fit(
    axes: Sequence[Axis],
    codes: Codes,
    score: Array,
    earlier: NDArray[np.bool_],
    *,
    spread: float,
    noise: float,
    pending: Codes | None = None,
    steps: int = 40,
) -> Objective:
    """Fit by maximum a posteriori; `spread` and `noise` are expected standard deviations in units of the score.

    `pending` assignments enter with the value the model expects of them: certainty grows there, the mean does not move.
    """
    kernels = Kernels(axes)
    centre = float(np.median(score))
    target = (score - centre) / spread
    singles = np.stack([kernels.along(column, codes, codes) for column in range(len(axes))])
    discount = np.where(earlier[:, None] != earlier[None, :], EARLIER_AGREEMENT, 1.0)
    loud = np.where(earlier, EARLIER_NOISE, 1.0) ** 2
    scales = _learn_scales(singles, target, discount, loud, noise / spread, steps)
    kernel = discount * scales.combine(singles) + np.diag(loud * scales.noise**2 + JITTER)
    factor = cholesky(kernel, lower=True)
    model = Objective(kernels, scales, codes, centre, spread, factor, cho_solve((factor, True), target), earlier)
    if pending is None or not len(pending):
        return model
    believed = np.concatenate([target, (model.mean(pending) - centre) / spread])
    together = np.concatenate([codes, pending])
    earlier = np.concatenate([earlier, np.zeros(len(pending), dtype=bool)])
    loud = np.concatenate([loud, np.ones(len(pending))])
    discount = np.where(earlier[:, None] != earlier[None, :], EARLIER_AGREEMENT, 1.0)
    singles = np.stack([kernels.along(column, together, together) for column in range(len(axes))])
    factor = cholesky(discount * scales.combine(singles) + np.diag(loud * scales.noise**2 + JITTER), lower=True)
    return Objective(kernels, scales, together, centre, spread, factor, cho_solve((factor, True), believed), earlier)


def _learn_scales(singles: Array, target: Array, discount: Array, loud: Array, noise: float, steps: int) -> Scales:
    dimensions, count = len(singles), len(target)
    typical = np.log(np.sqrt(1.0 / dimensions))
    centre = np.concatenate([np.full(dimensions, typical), [np.log(0.3), np.log(noise)]])
    width = np.concatenate([np.full(dimensions, 1.0), [1.0, 0.5]])
    flat = singles.reshape(dimensions, -1)
    squared = flat**2

    def scales_of(theta: Array) -> Scales:
        return Scales(np.exp(theta[:dimensions]), float(np.exp(theta[-2])), float(np.exp(theta[-1])))

    def loss(theta: Array) -> tuple[float, Array]:
        scales = scales_of(theta)
        variance, weights = scales.single**2, scales.pair_weights()
        first = (weights @ flat).reshape(count, count)
        second = (weights**2 @ squared).reshape(count, count)
        pairs = 0.5 * (first**2 - second)
        kernel = CONSTANT + (variance @ flat).reshape(count, count) + scales.pair * pairs
        kernel = discount * kernel + np.diag(loud * scales.noise**2 + JITTER)
        try:
            factor = cholesky(kernel, lower=True)
        except np.linalg.LinAlgError:
            return 1e10, np.zeros_like(theta)
        alpha = cho_solve((factor, True), target)
        inverse = cho_solve((factor, True), np.eye(count))
        gradient_kernel = 0.5 * discount * (np.outer(alpha, alpha) - inverse)
        by_axis = flat @ (gradient_kernel * (1.0 + scales.pair * first)).ravel()
        by_axis -= scales.pair * weights * (squared @ gradient_kernel.ravel())
        gradient = np.empty_like(theta)
        gradient[:dimensions] = 2.0 * variance * by_axis
        gradient[-2] = scales.pair * float((gradient_kernel * pairs).sum())
        gradient[-1] = scales.noise**2 * float((loud * (alpha**2 - np.diag(inverse))).sum())
        fit_term = 0.5 * float(target @ alpha) + float(np.log(np.diag(factor)).sum())
        pull = (theta - centre) / width
        return fit_term + 0.5 * float(pull @ pull), pull / width - gradient

    bounds = [(middle - 4.0, middle + 3.0) for middle in centre[:-2]] + [(-5.0, 2.0), (centre[-1] - 2.5, centre[-1] + 3.0)]
    if count < 2:
        return scales_of(centre)
    result = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return scales_of(result.x)


_TABLES: dict[tuple[int, bytes], Array] = {}


def _table(one: Axis) -> Array:
    """Correlation of each level with each other, inactive last."""
    key = (one.levels, one.positions.tobytes())
    if key not in _TABLES:
        equal = np.eye(one.levels + 1)
        ordered = len(one.positions)
        if ordered:
            near = np.exp(-0.5 * ((one.positions[:, None] - one.positions[None, :]) / SMOOTHNESS) ** 2)
            equal[:ordered, :ordered] = (1.0 - SMOOTH_SHARE) * equal[:ordered, :ordered] + SMOOTH_SHARE * near
        _TABLES[key] = equal
    return _TABLES[key]
