"""Parameters: what may vary, and what follows from what varies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema

from search_spaces.conditions import Condition, parse_condition
from search_spaces.derivation import Expression, parse_expression
from search_spaces.sections import Flag, Section, Variable, Word
from search_spaces.values import Value, ValueField, read_value, same, shown

_TEST_SCHEMA = {"type": ["null", "boolean", "integer", "number", "string", "array"]}
_MAPPING_SCHEMA = {"type": "object", "minProperties": 1, "additionalProperties": _TEST_SCHEMA}

ConditionField = Annotated[
    Condition,
    PlainValidator(parse_condition),
    PlainSerializer(lambda condition: condition.source),
    WithJsonSchema({"anyOf": [_MAPPING_SCHEMA, {"type": "array", "minItems": 1, "items": _MAPPING_SCHEMA}]}),
]
ExpressionField = Annotated[
    Expression,
    PlainValidator(parse_expression),
    PlainSerializer(lambda expression: expression.source),
    WithJsonSchema({"type": ["string", "integer"]}),
]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", description="lower-case letters, digits and _")]
_WHEN = "condition under which it exists, such as {speculation: nextn}"


class Range(Section):
    """Numbers from ``low`` to ``high``, both included; whole ones where all three are whole."""

    low: int | float = Field(description="least value")
    high: int | float = Field(description="greatest value")
    step: int | float | None = Field(
        default=None, gt=0, description="distance between values; left out, 1 for whole numbers, else none"
    )
    log: bool = Field(
        default=False, description="true: look at the scale by factors, not by differences; not with a step"
    )

    @property
    def whole(self) -> bool:
        """Whether only whole numbers are meant."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    def contains(self, value: Value) -> bool:
        """Whether a value is one of the range."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        if self.whole and not isinstance(value, int):
            return False
        steps = (value - self.low) / self.step if self.step else 0
        return abs(steps - round(steps)) < 1e-9

    def distribution(self) -> BaseDistribution:
        """The range as Optuna knows it."""
        if self.whole:
            return IntDistribution(int(self.low), int(self.high), log=self.log, step=int(self.step or 1))
        return FloatDistribution(self.low, self.high, log=self.log, step=self.step)


class Parameter(Section):
    """One thing that may vary. It sets a flag, a variable, or (``sets``) several of both at once."""

    name: Name
    note: Word = Field(description="why it is worth trying, in a sentence")
    flag: Flag | None = Field(default=None, description="flag that it sets, such as --page-size")
    env: Variable | None = Field(default=None, description="environment variable that it sets, such as NCCL_PROTO")
    sets: dict[str, dict[str, ValueField]] | None = Field(
        default=None,
        description="each choice with what it sets, such as {off: {}, nextn: {--speculative-algorithm: NEXTN}}",
    )
    values: tuple[ValueField, ...] | None = Field(
        default=None, description="list of the values to try, such as [unset, 1, 64]"
    )
    range: Range | None = Field(
        default=None, description="range of numbers, such as {low: 0.8, high: 0.93, step: 0.01}"
    )
    ordered: bool = Field(default=False, description="true where neighbours in the list behave alike")
    when: ConditionField | None = Field(default=None, description=_WHEN)
    default: ValueField = Field(default=None, description="value where nothing else is said; left out, the first one")

    @property
    def choices(self) -> tuple[Value, ...]:
        """The values to choose from, in order; empty for a range."""
        if self.sets is not None:
            return tuple(read_value(choice) for choice in self.sets)
        return self.values or ()

    @property
    def usual(self) -> Value:
        """The default, else the first value."""
        if "default" in self.model_fields_set:
            return self.default
        return self.range.low if self.range else self.choices[0]

    def allows(self, value: Value) -> bool:
        """Whether a value is one of this parameter's."""
        return self.range.contains(value) if self.range else any(same(value, one) for one in self.choices)

    def allowed(self) -> str:
        """What the values are, in words."""
        if self.range:
            return f"{self.range.low} to {self.range.high}" + (f" by {self.range.step}" if self.range.step else "")
        return ", ".join(shown(value) for value in self.choices)

    def exists(self, assignment: Mapping[str, Value]) -> bool:
        """Whether the parameter is active beside what is assigned before it."""
        return self.when is None or self.when.holds(assignment)

    def settings(self, value: Value) -> dict[str, Value]:
        """Flags (beginning with ``--``) and variables that a value sets; ``None`` takes one away."""
        if self.sets is not None:
            return next((dict(sets) for choice, sets in self.sets.items() if same(read_value(choice), value)), {})
        return {self.flag or self.env or "": value}

    def targets(self) -> frozenset[str]:
        """Every flag and variable that the parameter may set."""
        if self.sets is not None:
            return frozenset(target for sets in self.sets.values() for target in sets)
        return frozenset(target for target in (self.flag, self.env) if target)

    def distribution(self) -> BaseDistribution:
        """What the parameter may be, as Optuna knows it; the same at every trial."""
        return self.range.distribution() if self.range else CategoricalDistribution(self.choices)

    def suggest(self, trial: optuna.trial.BaseTrial) -> Value:
        """A value of an Optuna trial."""
        if self.range is None:
            choice: Value = trial.suggest_categorical(self.name, self.choices)
            return choice
        low, high, step, log = self.range.low, self.range.high, self.range.step, self.range.log
        if self.range.whole:
            return trial.suggest_int(self.name, int(low), int(high), step=int(step or 1), log=log)
        return trial.suggest_float(self.name, low, high, step=step, log=log)


class Derived(Section):
    """A flag or variable that follows from parameters; left out where one that it needs is inactive or unset."""

    flag: Flag | None = Field(default=None, description="flag that it sets, such as --speculative-num-draft-tokens")
    env: Variable | None = Field(default=None, description="environment variable that it sets")
    derive: ExpressionField = Field(
        description="expression such as steps + 1, of names, whole numbers, + - *, min and max"
    )
    when: ConditionField | None = Field(default=None, description=_WHEN)
    note: Word = Field(description="why it follows, in a sentence")

    def settings(self, assignment: Mapping[str, Value]) -> dict[str, Any]:
        """What it sets beside an assignment of the active parameters."""
        value = self.derive.value(assignment) if self.when is None or self.when.holds(assignment) else None
        return {} if value is None else {self.flag or self.env or "": value}
