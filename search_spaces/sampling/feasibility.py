"""Which configurations will run: a noisy-OR over the causes that a crash may have.

A cause is one atom or two together; an atom is a value, or an ordered parameter at or beyond a threshold. So a cause is
a bad value, a threshold, a pair of values, or a corner of two ordered parameters; besides these there are limits on the
sum of three positions (on logarithmic scales a product: memory). A configuration that ran acquits every cause that it
contains. For each crash the remaining suspects share the blame: a suspect's odds of guilt grow by one over the
probability that the crash would have happened without it (loopy belief propagation on a noisy-OR whose causes are
rarely guilty). The rate of guilt follows the history, so that a space with many traps is walked more carefully.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces.sampling.encoding import Axis, Codes, levels_of

# Prior probabilities of guilt, before the history scales them: a random configuration of 20 parameters crashes about
# half of the time with these.
VALUE, THRESHOLD, PAIR, LIMIT = 0.01, 0.015, 0.008, 0.0015
# A crash that nothing in the configuration explains (a fault of the machine that was told as a crash).
LEAK = 0.01
# How many guilty causes' worth of history the prior rate weighs.
RATE_WEIGHT = 4.0
SWEEPS = 15
MOST_SUSPECTS = 6000
MOST_LIMIT_AXES = 10
# Only so many limits, the most guilty, are asked about each candidate.
MOST_LIMITS = 60
# A categorical with more choices than this gets atoms for the choices seen only.
MOST_VALUE_ATOMS = 24

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Atoms:
    """Elementary conditions on one parameter each; `covers[a]` says which levels of its axis atom `a` holds for."""

    axis: NDArray[np.int64]
    covers: Mask  # (atom, level), inactive levels never covered
    weight: Array  # share of the prior: thresholds of one parameter overlap, so each counts less

    def of(self, axes: Sequence[Axis], codes: Codes) -> Array:
        """Which atoms hold in each assignment, as zeros and ones."""
        levels = levels_of(axes, codes)
        return self.covers[np.arange(len(self.axis))[None, :], levels[:, self.axis]].astype(float)

    def by_level(self, axes: Sequence[Axis]) -> tuple[NDArray[np.int64], Array]:
        """Where each axis begins in a row of all levels of all axes, and the atoms that hold for each of these."""
        sizes = np.array([one.levels + 1 for one in axes], dtype=np.int64)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        table = np.zeros((len(self.axis), int(sizes.sum())))
        for atom, column in enumerate(self.axis):
            table[atom, starts[column] : starts[column] + sizes[column]] = self.covers[atom, : sizes[column]]
        return starts, table


@dataclass(frozen=True)
class Limits:
    """Half-spaces of three ordered parameters: an assignment whose reach exceeds `cleared` is suspect."""

    axes: NDArray[np.int64]  # (limit, 3)
    signs: Array  # (limit, 3)
    cleared: Array
    certain: Array  # the smallest reach that crashed, infinite if none did
    blame: Array

    def reach(self, positions: Array) -> Array:
        """How far each assignment goes in each direction; minus infinity where a parameter has no position."""
        with np.errstate(invalid="ignore"):
            reach = (positions[:, self.axes] * self.signs[None]).sum(axis=2)
        return np.asarray(np.where(np.isfinite(reach), reach, -np.inf))

    def only(self, rows: NDArray[np.int64], blame: Array) -> Limits:
        """These limits, with this blame."""
        return Limits(self.axes[rows], self.signs[rows], self.cleared[rows], self.certain[rows], blame)

    def blame_of(self, positions: Array) -> Array:
        reach = self.reach(positions)
        share = np.clip((reach - self.cleared) / np.maximum(self.certain - self.cleared, 0.05), 0.3, 1.0)
        return np.asarray(np.where(reach > self.cleared, share * self.blame, 0.0).sum(axis=1))


@dataclass(frozen=True)
class Feasibility:
    """What was learnt; `log_runs` gives the logarithm of the probability that each assignment runs."""

    axes: Sequence[Axis]
    starts: NDArray[np.int64]  # where the levels of each axis begin in `blame`
    blame: Array  # (level, level), summed over the causes that hold for both
    limits: Limits

    def log_runs(self, codes: Codes) -> Array:
        one_hot = np.zeros((len(codes), len(self.blame)))
        one_hot[np.arange(len(codes))[:, None], levels_of(self.axes, codes) + self.starts] = 1.0
        blame = ((one_hot @ self.blame) * one_hot).sum(axis=1) - np.log1p(-LEAK)
        return np.asarray(-blame - self.limits.blame_of(_positions(self.axes, codes)))


def learn(axes: Sequence[Axis], codes: Codes, crashed: Mask) -> Feasibility:
    """Learn from finished trials; without any, every untried combination carries its prior risk."""
    atoms = _atoms(axes, codes)
    holds = atoms.of(axes, codes)
    prior = _prior(atoms)
    ran = holds[~crashed].T @ holds[~crashed] > 0
    fell = holds[crashed].T @ holds[crashed] > 0
    suspect = fell & ~ran & (prior > 0)
    rows, columns = np.nonzero(suspect)
    if len(rows) > MOST_SUSPECTS:
        count = (holds[crashed].T @ holds[crashed])[rows, columns] * prior[rows, columns]
        keep = np.sort(np.argsort(-count, kind="stable")[:MOST_SUSPECTS])
        rows, columns = rows[keep], columns[keep]
    limits = _limits(axes, codes, crashed)
    over = limits.reach(_positions(axes, codes)[crashed]) > limits.cleared[None, :]
    in_crash = np.concatenate([(holds[crashed][:, rows] * holds[crashed][:, columns]) > 0, over], axis=1)
    priors = np.concatenate([prior[rows, columns], np.full(over.shape[1], LIMIT)])
    tested = float(prior[(ran | fell)].sum()) + LIMIT * len(limits.cleared)
    guilt, rate = share_blame(in_crash, priors, tested)
    blame = np.where(ran, 0.0, -np.log1p(-np.minimum(prior * rate, 0.5)))
    blame[rows, columns] = -np.log1p(-guilt[: len(rows)])
    blame = np.where(prior > 0, blame, 0.0)
    worst = np.argsort(-guilt[len(rows) :], kind="stable")[:MOST_LIMITS]
    starts, by_level = atoms.by_level(axes)
    guilty_limits = limits.only(worst, -np.log1p(-guilt[len(rows) :][worst]))
    return Feasibility(axes, starts, by_level.T @ blame @ by_level, guilty_limits)


def share_blame(in_crash: Mask, priors: Array, tested: float) -> tuple[Array, float]:
    """The probability of guilt of each suspect, and the factor on the priors that the history speaks for.

    `in_crash[t, h]` says that suspect `h` was there in crash `t`; `tested` is the prior mass of all causes tried.
    """
    # Suspects that were in the same crashes are one group for the computation.
    if in_crash.shape[1] == 0 or in_crash.shape[0] == 0:
        base = np.minimum(priors, 0.5)
        return base, RATE_WEIGHT / (RATE_WEIGHT + tested)
    keyed = np.concatenate(
        [np.packbits(in_crash, axis=0).T, priors.astype(np.float64).view(np.uint8).reshape(-1, 8)], axis=1
    )
    _, first, group, sizes = np.unique(keyed, axis=0, return_index=True, return_inverse=True, return_counts=True)
    present, prior, group = in_crash[:, first].astype(float), priors[first], group.ravel()
    rate, odds = 1.0, np.zeros(len(first))
    for _ in range(SWEEPS):
        base = np.minimum(prior * rate, 0.5)
        guilt = _sigmoid(np.log(base) - np.log1p(-base) + odds)
        safe = np.log1p(-guilt)
        total = present @ (safe * sizes) + np.log1p(-LEAK)
        without = -np.expm1(np.minimum(total[:, None] - safe[None, :], -1e-9))  # P(crash | this suspect is innocent)
        odds = 0.5 * odds - 0.5 * (present * np.log(np.maximum(without, LEAK))).sum(axis=0)
        rate = (float((guilt * sizes).sum()) + RATE_WEIGHT) / (tested + RATE_WEIGHT)
    return np.minimum(guilt, 0.999)[group], rate


def _atoms(axes: Sequence[Axis], codes: Codes) -> Atoms:
    width = max((one.levels for one in axes), default=0) + 1
    levels = levels_of(axes, codes)
    owner, covers, weight = [], [], []
    for column, one in enumerate(axes):
        each = range(one.levels)
        if one.levels > MOST_VALUE_ATOMS and not one.ordered:
            each = sorted(set(levels[:, column].tolist()) - {one.levels})  # type: ignore[assignment]
        for level in each:
            owner.append(column)
            covers.append(np.arange(width) == level)
            weight.append(1.0)
        # Thresholds that hold for more than one level and not for all of them.
        for level in range(1, one.ordered - 1):
            inside = np.arange(width) < one.ordered
            for side in (np.arange(width) >= level, np.arange(width) <= level):
                owner.append(column)
                covers.append(inside & side)
                weight.append(1.0 / one.ordered)
    return Atoms(np.array(owner, dtype=np.int64), np.array(covers, dtype=bool).reshape(-1, width), np.array(weight))


def _prior(atoms: Atoms) -> Array:
    """Prior guilt of each pair of atoms: upper triangle between parameters, diagonal for an atom alone."""
    prior = np.triu(PAIR * np.outer(atoms.weight, atoms.weight), 1)
    prior[atoms.axis[:, None] == atoms.axis[None, :]] = 0.0
    np.fill_diagonal(prior, np.where(atoms.weight == 1.0, VALUE, THRESHOLD * atoms.weight))
    return prior


def _positions(axes: Sequence[Axis], codes: Codes) -> Array:
    """Positions on the ordered axes; minus infinity where there is none, so that no limit is exceeded."""
    positions = np.full(codes.shape, -np.inf)
    for column, one in enumerate(axes):
        present = ~np.isnan(codes[:, column])
        if one.continuous:
            positions[present, column] = codes[present, column]
        elif one.ordered:
            present &= np.where(present, codes[:, column], np.inf) < one.ordered
            positions[present, column] = one.positions[codes[present, column].astype(int)]
    return positions


def _limits(axes: Sequence[Axis], codes: Codes, crashed: Mask) -> Limits:
    ordered = [column for column, one in enumerate(axes) if one.ordered >= 3 or one.continuous][:MOST_LIMIT_AXES]
    chosen = [(triple, signs) for triple in itertools.combinations(ordered, 3) for signs in _SIGNS]
    triples = np.array([triple for triple, _ in chosen], dtype=np.int64).reshape(-1, 3)
    signs = np.array([sign for _, sign in chosen], dtype=float).reshape(-1, 3)
    limits = Limits(triples, signs, np.zeros(len(chosen)), np.zeros(len(chosen)), np.zeros(len(chosen)))
    if not chosen:
        return limits
    reach = limits.reach(_positions(axes, codes))
    cleared = reach[~crashed].max(axis=0, initial=-3.5) + 1e-9
    certain = np.where(reach[crashed] > cleared, reach[crashed], np.inf).min(axis=0, initial=np.inf)
    keep = np.isfinite(certain)
    return Limits(triples[keep], signs[keep], cleared[keep], certain[keep], np.zeros(int(keep.sum())))


_SIGNS = list(itertools.product((1.0, -1.0), repeat=3))


def _sigmoid(logit: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logit)))
