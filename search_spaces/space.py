"""A space: what may vary between launches of one engine, and how an Optuna trial becomes a configuration."""

from __future__ import annotations

from collections.abc import Mapping

import optuna
from pydantic import Field

from engine.configuration import Configuration
from search_spaces.errors import SpaceError, near
from search_spaces.parameters import ConditionField, Derived, Name, Parameter
from search_spaces.sections import BenchmarkPlan, Budget, EngineProgram, Model, Section, Word
from search_spaces.values import Value, ValueField, same, shown

# The active parameters by name, in the order of the space, each with its value.
Assignment = dict[str, Value]


class Rule(Section):
    """What the installed engine cannot know to refuse: it is accepted there, and crashes or lies later."""

    name: Word = Field(description="a few words")
    forbid: ConditionField = Field(
        description="condition that is forbidden, such as {attention: trtllm_mha, kv_cache: fp8_e4m3}"
    )
    reason: Word = Field(description="what would happen, in a sentence")


class Enqueued(Section):
    """A configuration that is tried before the search begins to choose."""

    name: Word = Field(description="a few words")
    note: Word = Field(description="why it is worth trying first")
    assignment: dict[str, ValueField] = Field(
        description="values such as {speculation: nextn}; the rest takes its default"
    )


class Space(Section):
    """One YAML file of `search_spaces/spaces`, or of the user's own. Read it with `search_spaces.load`."""

    name: Word = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", description="short name, as in the command line")
    description: Word = Field(description="what is searched, on what machine")
    model: Model
    engine: EngineProgram
    parameters: tuple[Parameter, ...] = Field(min_length=1, description="what may vary")
    derived: tuple[Derived, ...] = Field(default=(), description="flags that follow from parameters")
    rules: tuple[Rule, ...] = Field(default=(), description="what is never launched")
    baseline_values: dict[Name, ValueField] = Field(
        default_factory=dict,
        alias="baseline",
        description="what everything is compared with, by values that differ from the defaults",
    )
    enqueue: tuple[Enqueued, ...] = Field(default=(), description="configurations tried first, after the baseline")
    benchmark: BenchmarkPlan
    budget: Budget = Field(default_factory=Budget, description="trials and hours")

    def parameter(self, name: str) -> Parameter:
        """The parameter of a name; raises SpaceError for an unknown one."""
        for parameter in self.parameters:
            if parameter.name == name:
                return parameter
        known = [parameter.name for parameter in self.parameters]
        raise SpaceError(f"{name}: the space {self.name} has no parameter of this name; {near(name, known)}")

    def complete(self, assignment: Mapping[str, Value]) -> Assignment:
        """The assignment of every active parameter: defaults filled in, inactive ones dropped.

        Raises SpaceError for a name that the space does not know or a value that a parameter does not take.
        """
        for name, value in assignment.items():
            parameter = self.parameter(name)
            if not parameter.allows(value):
                raise SpaceError(f"{name}: {shown(value)} is none of its values; take one of {parameter.allowed()}")
        whole: Assignment = {}
        for parameter in self.parameters:
            if parameter.exists(whole):
                whole[parameter.name] = assignment.get(parameter.name, parameter.usual)
        return whole

    def baseline_assignment(self) -> Assignment:
        """The baseline, complete."""
        return self.complete(self.baseline_values)

    def baseline(self) -> Configuration:
        """The baseline as the engine is started with it."""
        return self.configuration(self.baseline_assignment())

    def enqueued(self) -> tuple[tuple[Enqueued, Assignment], ...]:
        """The configurations to try first, each with its complete assignment, in the order of the file."""
        return tuple((one, self.complete(one.assignment)) for one in self.enqueue)

    def suggest(self, trial: optuna.trial.BaseTrial) -> Assignment:
        """The assignment of an Optuna trial: active parameters only, each always with the same distribution."""
        assignment: Assignment = {}
        for parameter in self.parameters:
            if parameter.exists(assignment):
                assignment[parameter.name] = parameter.suggest(trial)
        return assignment

    def fixed(self, assignment: Mapping[str, Value]) -> Assignment:
        """What ``study.enqueue_trial`` needs so that `suggest` gives this assignment and nothing is left to chance."""
        return self.complete(assignment)

    def configuration(self, assignment: Mapping[str, Value]) -> Configuration:
        """The flags and variables of one launch.

        The flags are complete, the model's path among them; the variables are those that parameters set, since
        the base environment (``engine.base_environment``) belongs to the program.
        """
        whole = self.complete(assignment)
        settings: dict[str, Value] = {}
        for parameter in self.parameters:
            if parameter.name in whole:
                settings |= parameter.settings(whole[parameter.name])
        for derived in self.derived:
            settings |= derived.settings(whole)
        base = Configuration({"--model-path": self.model.path, **self.engine.base_flags})
        return base.with_changes(
            {name: value for name, value in settings.items() if name.startswith("--")},
            {
                name: None if value is None else str(value)
                for name, value in settings.items()
                if not name.startswith("--")
            },
        )

    def broken_rule(self, assignment: Mapping[str, Value]) -> str | None:
        """The first rule that an assignment breaks, with its reason; ``None`` where all are kept."""
        whole = self.complete(assignment)
        for rule in self.rules:
            if rule.forbid.holds(whole):
                return f"{rule.name}: {rule.reason}"
        return None

    def label(self, assignment: Mapping[str, Value], against: Mapping[str, Value] | None = None) -> str:
        """What differs from the baseline or another assignment, as in ``speculation=nextn steps=3``."""
        here = self.complete(assignment)
        there = self.complete(self.baseline_values if against is None else against)
        changed = [
            f"{name}={shown(value)}"
            for name, value in here.items()
            if name not in there or not same(there[name], value)
        ]
        if changed:
            return " ".join(changed)
        return "baseline" if against is None or there == self.baseline_assignment() else "no change"
