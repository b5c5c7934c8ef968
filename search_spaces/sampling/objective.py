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

from search_spaces.sampling.encoding import Axis, Codes

Array = NDArray[np.float64]

SMOOTHNESS = 0.4  # length scale of an ordered parameter, in shares of its range
SMOOTH_SHARE = 0.7  # how much of an ordered parameter's effect is smooth in the order
SCALE_WIDTH = 0.6  # standard deviation of the prior on the logarithm of a parameter's scale
CONSTANT = 10.0  # variance of the overall level, in units of the spread's variance
PAIR_PRIOR = 0.3  # expected variance of the pair terms, in units of the spread's variance
PAIR_FLOOR = 0.15  # the share of an average parameter that takes part in pairs without an effect of its own
EARLIER_AGREEMENT = 0.9  # correlation between what an earlier study saw and what this one would see
EARLIER_NOISE = 2.0
JITTER = 1e-6
# A continuous axis is interpolated between this many nodes; dense enough for the smoothness above.
NODES = 9


@dataclass(frozen=True)
class Features:
    """Assignments as weights on the nodes of each axis, so that a kernel along an axis is a product with a table.

    A level is a node, and so is taking no part; a continuous position lies between two of a few nodes.
    """

    columns: tuple[slice, ...]  # the nodes of each axis
    tables: tuple[Array, ...]  # correlation of the nodes of each axis
    axes: Sequence[Axis]

    def of(self, codes: Codes) -> Array:
        weights = np.zeros((len(codes), self.columns[-1].stop))
        rows = np.arange(len(codes))
        for column, (one, nodes, table) in enumerate(zip(self.axes, self.columns, self.tables, strict=True)):
            code, missing = codes[:, column], np.isnan(codes[:, column])
            if one.continuous:
                place = np.where(missing, 0.0, np.clip(code, 0.0, 1.0)) * (NODES - 1)
                left = np.minimum(place.astype(int), NODES - 2)
                share = place - left
                # Scaled so that each position correlates with itself by one: else what lies between nodes would stay
                # uncertain however often it was tried.
                near = table[0, 1]
                norm = np.sqrt((1.0 - share) ** 2 + share**2 + 2.0 * near * share * (1.0 - share))
                weights[rows, nodes.start + left] = np.where(missing, 0.0, (1.0 - share) / norm)
                weights[rows, nodes.start + left + 1] = np.where(missing, 0.0, share / norm)
                weights[rows[missing], nodes.stop - 1] = 1.0
            else:
                weights[rows, nodes.start + np.where(missing, one.levels, code).astype(int)] = 1.0
        return weights

    def along_each(self, weights: Array) -> Array:
        """The correlation of all with all along each axis (axis first)."""
        parts = [weights[:, nodes] for nodes in self.columns]
        return np.stack([part @ table @ part.T for part, table in zip(parts, self.tables, strict=True)])

    def scaled(self, weights: Array, by: Array) -> Array:
        """`weights` times the tables, each axis multiplied by its entry of `by`."""
        out = np.empty_like(weights)
        for nodes, table, factor in zip(self.columns, self.tables, by, strict=True):
            out[:, nodes] = weights[:, nodes] @ (factor * table)
        return out

    def scaled_squares(self, weights: Array, by: Array) -> Array:
        """The same with the squares of the tables, for axes of levels only (between nodes squares do not add)."""
        out = np.zeros_like(weights)
        for one, nodes, table, factor in zip(self.axes, self.columns, self.tables, by, strict=True):
            if not one.continuous:
                out[:, nodes] = weights[:, nodes] @ (factor * table**2)
        return out

    @property
    def between_nodes(self) -> list[slice]:
        """The nodes of the continuous axes."""
        return [nodes for one, nodes in zip(self.axes, self.columns, strict=True) if one.continuous]


def features_of(axes: Sequence[Axis]) -> Features:
    columns, tables, start = [], [], 0
    for one in axes:
        tables.append(_table(one))
        columns.append(slice(start, start + len(tables[-1])))
        start += len(tables[-1])
    return Features(tuple(columns), tuple(tables), axes)


@dataclass(frozen=True)
class Scales:
    """Hyperparameters, all in units of the objective's spread."""

    single: Array  # standard deviation of each parameter's effect
    pair: float  # variance of the pair terms
    noise: float  # standard deviation of a measurement

    def pair_weights(self) -> Array:
        return np.asarray(self.single**2 + PAIR_FLOOR / len(self.single))

    def variance(self) -> float:
        """Prior variance of an assignment."""
        weights = self.pair_weights()
        return float(CONSTANT + (self.single**2).sum() + self.pair * 0.5 * (weights.sum() ** 2 - (weights**2).sum()))


@dataclass(frozen=True)
class Objective:
    """A fitted model; means and deviations are in the units of the scores given."""

    features: Features
    scales: Scales
    centre: float
    spread: float
    weights: Array  # of the trials learnt from
    prepared: tuple[Array, Array, Array]  # those times the tables: single effects, pairs, squares
    factor: Array
    alpha: Array
    earlier: NDArray[np.bool_]

    def mean(self, codes: Codes) -> Array:
        return np.asarray(self.centre + self.spread * (self._cross(self.features.of(codes)) @ self.alpha))

    def predict(self, codes: Codes, against: Codes) -> tuple[Array, Array]:
        """Expected gain over `against` (one row), and the standard deviation of that gain."""
        weights = self.features.of(np.concatenate([codes, against]))
        cross = self._cross(weights)
        mean = self.spread * (cross @ self.alpha)
        half = solve_triangular(self.factor, cross.T, lower=True, check_finite=False)
        own = self.scales.variance() - (half**2).sum(axis=0)
        joint = self._kernel(weights, _prepare(self.features, self.scales, weights[-1:]))[:, 0] - half.T @ half[:, -1]
        variance = own[:-1] + own[-1] - 2.0 * joint[:-1]
        return mean[:-1] - mean[-1], self.spread * np.sqrt(np.maximum(variance, 1e-10))

    def _kernel(self, weights: Array, prepared: tuple[Array, Array, Array]) -> Array:
        return _kernel(self.features, self.scales, weights, prepared)

    def _cross(self, weights: Array) -> Array:
        cross = self._kernel(weights, self.prepared)
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
    steps: int = 30,
) -> Objective:
    """Fit by maximum a posteriori; `spread` and `noise` are expected standard deviations in units of the score.

    `pending` assignments enter with the value the model expects of them: certainty grows there, the mean does not move.
    """
    features = features_of(axes)
    centre = float(np.median(score))
    target = (score - centre) / spread
    weights = features.of(codes)
    scales = _learn_scales(
        features.along_each(weights), target, _discount(earlier), _loudness(earlier), noise / spread, steps
    )
    model = _condition(features, scales, centre, spread, weights, target, earlier)
    if pending is None or not len(pending):
        return model
    believed = np.concatenate([target, (model.mean(pending) - centre) / spread])
    together = np.concatenate([weights, features.of(pending)])
    earlier = np.concatenate([earlier, np.zeros(len(pending), dtype=bool)])
    return _condition(features, scales, centre, spread, together, believed, earlier)


def _condition(
    features: Features,
    scales: Scales,
    centre: float,
    spread: float,
    weights: Array,
    target: Array,
    earlier: NDArray[np.bool_],
) -> Objective:
    prepared = _prepare(features, scales, weights)
    kernel = _discount(earlier) * _kernel(features, scales, weights, prepared)
    factor = cholesky(kernel + np.diag(_loudness(earlier) * scales.noise**2 + JITTER), lower=True)
    alpha = cho_solve((factor, True), target)
    return Objective(features, scales, centre, spread, weights, prepared, factor, alpha, earlier)


def _prepare(features: Features, scales: Scales, weights: Array) -> tuple[Array, Array, Array]:
    by_pair = scales.pair_weights()
    return (
        features.scaled(weights, scales.single**2),
        features.scaled(weights, by_pair),
        features.scaled_squares(weights, by_pair**2),
    )


def _kernel(features: Features, scales: Scales, weights: Array, prepared: tuple[Array, Array, Array]) -> Array:
    single, pair, square = (weights @ part.T for part in prepared)
    for nodes in features.between_nodes:
        square = square + (weights[:, nodes] @ prepared[1][:, nodes].T) ** 2
    return np.asarray(CONSTANT + single + scales.pair * 0.5 * (pair**2 - square))


def _discount(earlier: NDArray[np.bool_]) -> Array:
    return np.where(earlier[:, None] != earlier[None, :], EARLIER_AGREEMENT, 1.0)


def _loudness(earlier: NDArray[np.bool_]) -> Array:
    return np.asarray(np.where(earlier, EARLIER_NOISE, 1.0) ** 2)


def _learn_scales(singles: Array, target: Array, discount: Array, loud: Array, noise: float, steps: int) -> Scales:
    dimensions, count = len(singles), len(target)
    typical = np.log(np.sqrt(1.0 / dimensions))
    centre = np.concatenate([np.full(dimensions, typical), [np.log(PAIR_PRIOR), np.log(noise)]])
    width = np.concatenate([np.full(dimensions, SCALE_WIDTH), [1.0, 0.5]])
    flat = singles.reshape(dimensions, -1)
    squared = flat**2

    def scales_of(theta: Array) -> Scales:
        return Scales(np.exp(theta[:dimensions]), float(np.exp(theta[-2])), float(np.exp(theta[-1])))

    def pair_parts(scales: Scales) -> tuple[Array, Array]:
        weights = scales.pair_weights()
        first = (weights @ flat).reshape(count, count)
        return first, 0.5 * (first**2 - (weights**2 @ squared).reshape(count, count))

    def kernel_of(scales: Scales) -> Array:
        kernel = CONSTANT + (scales.single**2 @ flat).reshape(count, count) + scales.pair * pair_parts(scales)[1]
        return np.asarray(discount * kernel + np.diag(loud * scales.noise**2 + JITTER))

    def loss(theta: Array) -> tuple[float, Array]:
        scales = scales_of(theta)
        variance, weights = scales.single**2, scales.pair_weights()
        first, pairs = pair_parts(scales)
        kernel = kernel_of(scales)
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

    bounds = [(middle - 4.0, middle + 3.0) for middle in centre[:-2]] + [
        (-5.0, 2.0),
        (centre[-1] - 2.5, centre[-1] + 3.0),
    ]
    if count < 2:
        return scales_of(centre)
    result = minimize(loss, centre, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    best = scales_of(result.x)
    return Scales(_widened(best, singles, kernel_of(best), discount, width[:dimensions]), best.pair, best.noise)


def _widened(scales: Scales, singles: Array, kernel: Array, discount: Array, width: Array) -> Array:
    """The single scales, larger where the data say little of them.

    The most probable scale of a parameter that hardly varied is too small: what was not tried looks harmless. By
    Laplace's approximation on log(scale) with Fisher information, the mean of the variance is exp(2 u) times the
    variance at the maximum, u the posterior variance of log(scale).
    """
    inverse = cho_solve((cholesky(kernel, lower=True), True), np.eye(len(kernel)))
    information = np.empty(len(singles))
    for axis, single in enumerate(singles):
        change = inverse @ (2.0 * scales.single[axis] ** 2 * discount * single)
        information[axis] = 0.5 * float((change * change.T).sum())
    return np.asarray(scales.single * np.exp(1.0 / (1.0 / width**2 + information)))


def _table(one: Axis) -> Array:
    """Correlation of each node with each other; the last node is taking no part."""
    if one.continuous:
        return _with_inactive(_near(np.linspace(0.0, 1.0, NODES)))
    table = np.eye(one.levels)
    ordered = len(one.positions)
    if ordered:
        smooth = SMOOTH_SHARE * _near(one.positions)
        table[:ordered, :ordered] = (1.0 - SMOOTH_SHARE) * table[:ordered, :ordered] + smooth
    return _with_inactive(table)


def _near(positions: Array) -> Array:
    return np.asarray(np.exp(-0.5 * ((positions[:, None] - positions[None, :]) / SMOOTHNESS) ** 2))


def _with_inactive(table: Array) -> Array:
    wider = np.zeros((len(table) + 1, len(table) + 1))
    wider[:-1, :-1] = table
    wider[-1, -1] = 1.0
    return wider
