"""A study's trials as the models see them: what was tried, how good it was, whether it crashed or still runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

# Spread of log(throughput) over configurations before any was seen: a factor of 1.3 up or down.
EXPECTED_LOG_SPREAD = 0.25
# Values beyond this are cut, so that squares stay finite.
HUGE = 1e100


@dataclass(frozen=True)
class History:
    """Trials worth learning from. `score` is larger when better and NaN without a usable value."""

    trials: tuple[FrozenTrial, ...]
    score: NDArray[np.float64]
    crashed: NDArray[np.bool_]
    pending: NDArray[np.bool_]
    earlier: NDArray[np.bool_]  # from an earlier study
    logarithmic: bool

    @property
    def assignments(self) -> list[dict[str, Any]]:
        return [trial.params for trial in self.trials]

    @property
    def measured(self) -> NDArray[np.bool_]:
        return np.isfinite(self.score)


def violated(trial: FrozenTrial) -> bool:
    """Whether a constraint says that the configuration does not work (NaN says so too)."""
    return any(not value <= 0 for value in trial.constraints.values())


def read(
    trials: Sequence[FrozenTrial],
    earlier: Sequence[FrozenTrial],
    directions: Sequence[StudyDirection],
    weights: NDArray[np.float64] | None = None,
    *,
    exclude: int | None = None,
) -> History:
    """Read a study.

    FAIL says something about the environment and nothing about the configuration: left out. COMPLETE with a violated
    constraint, or with a value that is not finite, is a crash. PRUNED ran but was not worth finishing: it counts as the
    median of what was measured. `weights` (several objectives only) blend
    the objectives, each brought to unit spread.
    """
    kept = [
        (trial, is_earlier)
        for group, is_earlier in ((earlier, True), (trials, False))
        for trial in group
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        or (trial.state == TrialState.RUNNING and not is_earlier and trial.number != exclude)
    ]
    own = tuple(trial for trial, _ in kept)
    pending = np.array([trial.state == TrialState.RUNNING for trial in own], dtype=bool)
    raw = np.array([_values(trial, directions) for trial in own], dtype=float).reshape(len(own), len(directions))
    broken = np.array([violated(trial) for trial in own], dtype=bool)
    finished = np.array([trial.state == TrialState.COMPLETE for trial in own], dtype=bool)
    crashed = ~pending & (broken | (finished & ~np.isfinite(raw).all(axis=1)))
    raw[crashed | ~finished] = math.nan
    is_earlier = np.array([earlier_one for _, earlier_one in kept], dtype=bool)
    score, logarithmic = _score(raw, directions, weights)
    pruned = ~pending & ~finished & ~crashed
    if pruned.any() and np.isfinite(score).any():
        score[pruned] = np.nanmedian(score)
    return History(own, score, crashed, pending, is_earlier, logarithmic)


def _values(trial: FrozenTrial, directions: Sequence[StudyDirection]) -> list[float]:
    values = trial.values if trial.values is not None and len(trial.values) == len(directions) else None
    if values is None:
        return [math.nan] * len(directions)
    return [max(-HUGE, min(HUGE, value)) if math.isfinite(value) else math.nan for value in map(float, values)]


def _score(
    raw: NDArray[np.float64], directions: Sequence[StudyDirection], weights: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], bool]:
    usable = raw[np.isfinite(raw).all(axis=1)]
    sign = np.array([1.0 if direction == StudyDirection.MAXIMIZE else -1.0 for direction in directions])
    positive = bool(len(usable)) and bool((usable > 0).all())
    with np.errstate(all="ignore"):
        score = sign * (np.log(raw) if positive else raw)
    if len(directions) == 1:
        return score[:, 0], positive
    blend = np.full(len(directions), 1.0 / len(directions)) if weights is None else weights
    if len(usable):
        centre, spread = np.nanmean(score, axis=0), np.nanstd(score, axis=0)
        score = (score - centre) / np.where(spread > 0, spread, 1.0)
    return score @ blend, False
