"""A conditional space in plain data, for surfaces: suggest it to an Optuna trial, sample it, walk its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import optuna

Assignment = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """Choices, or a range of numbers; there only if each parameter named in `when` has one of the values given."""

    name: str
    choices: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    integer: bool = False
    log: bool = False
    step: int = 1
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def active(self, assignment: Mapping[str, Any]) -> bool:
        return all(assignment.get(parent) in allowed for parent, allowed in self.when.items())

    def suggest(self, trial: optuna.trial.Trial) -> Any:
        if self.choices:
            return trial.suggest_categorical(self.name, list(self.choices))
        if self.integer:
            step = 1 if self.log else self.step
            return trial.suggest_int(self.name, int(self.low), int(self.high), step=step, log=self.log)
        return trial.suggest_float(self.name, self.low, self.high, log=self.log)

    def sample(self, rng: np.random.Generator) -> Any:
        return self.choices[int(rng.integers(len(self.choices)))] if self.choices else self.at(float(rng.uniform()))

    def at(self, unit: float) -> float | int:
        """The number at a position between 0 and 1 of the range."""
        if self.log:
            number = float(np.exp(np.log(self.low) + unit * (np.log(self.high) - np.log(self.low))))
        else:
            number = self.low + unit * (self.high - self.low)
        if not self.integer:
            return number
        step = 1 if self.log else self.step
        return int(min(self.high, self.low + round((number - self.low) / step) * step))

    def position(self, value: Any) -> float:
        """Where a number lies in the range, or a choice in the list, between 0 and 1."""
        if self.choices:
            return self.choices.index(value) / max(1, len(self.choices) - 1)
        if self.log:
            return float(np.log(value / self.low) / np.log(self.high / self.low))
        return float((value - self.low) / (self.high - self.low))

    def options(self) -> list[Any]:
        """All choices, or about a dozen numbers over the range."""
        if self.choices:
            return list(self.choices)
        return sorted({self.at(unit) for unit in np.linspace(0.0, 1.0, 13)})


@dataclass(frozen=True)
class SurfaceSpace:
    parameters: tuple[Parameter, ...]

    def suggest(self, trial: optuna.trial.Trial) -> Assignment:
        assignment: Assignment = {}
        for parameter in self.parameters:
            if parameter.active(assignment):
                assignment[parameter.name] = parameter.suggest(trial)
        return assignment

    def sample(self, rng: np.random.Generator) -> Assignment:
        drawn = {parameter.name: parameter.sample(rng) for parameter in self.parameters}
        return self.trimmed(drawn)

    def trimmed(self, values: Mapping[str, Any]) -> Assignment:
        """Only what takes part, in the order of the space."""
        assignment: Assignment = {}
        for parameter in self.parameters:
            if parameter.active(assignment):
                assignment[parameter.name] = values[parameter.name]
        return assignment

    def neighbours(self, values: Assignment) -> Iterator[Assignment]:
        """All assignments (with values for inactive parameters) that differ in one parameter."""
        for parameter in self.parameters:
            for option in parameter.options():
                if option != values[parameter.name]:
                    yield {**values, parameter.name: option}


def choice(name: str, *choices: Any, when: Mapping[str, Sequence[Any]] | None = None) -> Parameter:
    return Parameter(name, choices=tuple(choices), when={k: tuple(v) for k, v in (when or {}).items()})


def number(
    name: str, low: float, high: float, *, log: bool = False, when: Mapping[str, Sequence[Any]] | None = None
) -> Parameter:
    return Parameter(name, low=low, high=high, log=log, when={k: tuple(v) for k, v in (when or {}).items()})


def count(
    name: str,
    low: int,
    high: int,
    *,
    step: int = 1,
    log: bool = False,
    when: Mapping[str, Sequence[Any]] | None = None,
) -> Parameter:
    conditions = {k: tuple(v) for k, v in (when or {}).items()}
    return Parameter(name, low=low, high=high, integer=True, log=log, step=step, when=conditions)
