"""What mattered most: how much each setting changes the throughput at each level. Pure.

Throughputs multiply, so the logarithm of each over the baseline's is taken as a sum of one term for every setting that
differs from the baseline's. With few trials and many settings such a sum has no single answer; a normal prior of ten
percent on each term picks the smallest that fits and gives each its standard deviation (Bayesian linear regression).
Trials that were stopped early count at the levels they were measured at. Interactions are not in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from report.study_record import StudyRecord

# What a setting is expected to change, and the noise of a launch where none was seen, as logarithms.
_PRIOR, _LEAST_NOISE = 0.10, 0.02


@dataclass(frozen=True)
class Effect:
    """One setting against the baseline's value, or several that were only ever changed together.

    Ratios: 1.05 is 5 % faster; ``spread`` is one standard deviation of their logarithms.
    """

    settings: tuple[tuple[str, Any], ...]
    trials: int
    ratio: Mapping[str, float]
    spread: Mapping[str, float]

    @property
    def label(self) -> str:
        """As in ``speculation=nextn steps=3``."""
        return " ".join(f"{name}={_shown(value)}" for name, value in self.settings)

    @property
    def strength(self) -> float:
        """Mean size over the levels, for the order."""
        return sum(abs(math.log(one)) for one in self.ratio.values()) / max(len(self.ratio), 1)

    def is_clear(self, level: str) -> bool:
        """Whether it is more than two standard deviations from none."""
        return level in self.ratio and abs(math.log(self.ratio[level])) > 2 * self.spread[level]


def effects(record: StudyRecord) -> tuple[Effect, ...]:
    """Every setting that was measured beside the baseline's, the strongest first."""
    if record.baseline is None:
        return ()
    usual = record.trial(record.baseline.number).params
    rows = [
        (record.trial(row.number).params, row.facts.throughput)
        for row in record.standings
        if row.score is not None and row.facts.reused_from is None and row.facts.throughput
    ]
    together: dict[tuple[int, ...], list[tuple[str, Any]]] = {}
    for setting in _changed(record, rows, usual):
        users = tuple(i for i, (params, _) in enumerate(rows) if _has(params, setting))
        together.setdefault(users, []).append(setting)
    ratios: list[dict[str, float]] = [{} for _ in together]
    spreads: list[dict[str, float]] = [{} for _ in together]
    for level, reference in record.baseline.facts.throughput.items():
        seen = [i for i, (_, rate) in enumerate(rows) if rate.get(level, 0) > 0]
        if len(seen) < 2 or reference <= 0:
            continue
        x = np.array([[float(i in users) for users in together] for i in seen]).reshape(len(seen), len(together))
        y = np.array([math.log(rows[i][1][level] / reference) for i in seen])
        term, deviation = _fit(x, y)
        for column in np.flatnonzero(x.any(axis=0)):
            ratios[column][level] = math.exp(term[column])
            spreads[column][level] = float(deviation[column])
    found = [
        Effect(tuple(settings), len(users), ratio, spread)
        for (users, settings), ratio, spread in zip(together.items(), ratios, spreads, strict=True)
        if ratio
    ]
    return tuple(sorted(found, key=lambda one: -one.strength))


def _changed(
    record: StudyRecord, rows: Sequence[tuple[Mapping[str, Any], Any]], usual: Mapping[str, Any]
) -> list[tuple[str, Any]]:
    """Settings that some trial has and the baseline has not, in the order of the space."""
    order = [str(one.get("name")) for one in record.space.get("parameters") or [] if isinstance(one, dict)]
    found = {(name, value) for params, _ in rows for name, value in params.items() if not _has(usual, (name, value))}
    return sorted(found, key=lambda one: (order.index(one[0]) if one[0] in order else len(order), str(one)))


def _has(params: Mapping[str, Any], setting: tuple[str, Any]) -> bool:
    return setting[0] in params and params[setting[0]] == setting[1]


def _fit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Terms and their standard deviations; the noise is taken from the residuals, never below two percent."""
    noise = _LEAST_NOISE
    for _ in range(3):
        inverse = np.linalg.inv(x.T @ x / noise**2 + np.eye(x.shape[1]) / _PRIOR**2)
        term = inverse @ x.T @ y / noise**2
        freedom = max(len(y) - float(np.trace(x @ inverse @ x.T) / noise**2), 1.0)
        noise = max(_LEAST_NOISE, math.sqrt(float(((y - x @ term) ** 2).sum()) / freedom))
    return term, np.sqrt(np.diag(inverse))


def _shown(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
