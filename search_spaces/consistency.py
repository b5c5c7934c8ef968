"""Whether the parts of a space fit each other: names, values, conditions, rules, the baseline and what is enqueued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from search_spaces.conditions import Condition
from search_spaces.derivation import Expression
from search_spaces.errors import Problem, SpaceError, near
from search_spaces.nodes import Where
from search_spaces.parameters import Parameter
from search_spaces.sections import flag_name, variable_name
from search_spaces.space import Space
from search_spaces.values import Value, shown


def problems(space: Space) -> list[Problem]:
    """Everything that does not fit. What is enqueued is looked at only where the rest is sound."""
    found = [*_twice(space), *_parameters(space), *_targets(space), *_conditions(space), *_derived(space)]
    return found or list(_assignments(space))


def _parameters(space: Space) -> Iterator[Problem]:
    for position, parameter in enumerate(space.parameters):
        where: Where = ("parameters", position)
        ways = [way for way in ("flag", "env", "sets") if getattr(parameter, way) is not None]
        if len(ways) != 1:
            what = f"sets {' and '.join(ways)} at once" if ways else "sets nothing"
            yield Problem(where, what, "give one of flag, env or sets")
            continue
        kinds = [kind for kind in ("values", "range") if getattr(parameter, kind) is not None]
        if ways == ["sets"] and kinds:
            yield Problem((*where, kinds[0]), "the choices are already those of sets", f"take {kinds[0]} away")
        elif ways != ["sets"] and len(kinds) != 1:
            what = "has both values and a range" if kinds else "has neither values nor a range"
            yield Problem(where, what, "give one of values or range")
        else:
            yield from _values(parameter, where)


def _values(parameter: Parameter, where: Where) -> Iterator[Problem]:
    if parameter.range:
        if parameter.range.low > parameter.range.high:
            yield Problem(
                (*where, "range"), f"low {parameter.range.low} is above high {parameter.range.high}", "swap them"
            )
            return
        if parameter.range.log and (parameter.range.step or parameter.range.low <= 0):
            yield Problem(
                (*where, "range", "log"), "a log range needs a low above 0 and no step", "take log or step away"
            )
            return
        if "default" not in parameter.model_fields_set:
            yield Problem(where, "a range needs a default", f"add default: {parameter.range.low}")
            return
    elif not parameter.choices:
        key = "sets" if parameter.sets is not None else "values"
        yield Problem((*where, key), "there is nothing to choose from", "list at least one value")
        return
    for one, value in enumerate(parameter.choices):
        # Optuna tells categories apart with ==, so 1 and true would be one.
        if any(value == earlier for earlier in parameter.choices[:one]):
            key = "sets" if parameter.sets is not None else "values"
            yield Problem((*where, key), f"{shown(value)} is there twice", "keep one of the two")
    if not parameter.allows(parameter.usual):
        what = f"{shown(parameter.usual)} is none of its values"
        yield Problem((*where, "default"), what, f"take one of {parameter.allowed()}")


def _targets(space: Space) -> Iterator[Problem]:
    """Two that set the same flag or variable would override each other without a word."""
    owners: dict[str, str] = {}
    for position, parameter in enumerate(space.parameters):
        where: Where = ("parameters", position)
        for choice, sets in (parameter.sets or {}).items():
            for target, value in sets.items():
                yield from _target(target, value, (*where, "sets", choice, target))
        if parameter.env:
            for value in parameter.choices:
                yield from _target(parameter.env, value, (*where, "values"))
        for target in sorted(parameter.targets()):
            if target in owners:
                yield Problem(where, f"sets {target}, as {owners[target]} does", "let one parameter set it")
            elif target in space.engine.environment:
                what = f"sets {target}, which engine.environment gives to every launch"
                yield Problem(where, what, "take it out of engine.environment and make it the default here")
            owners.setdefault(target, f"parameter {parameter.name}")
    for position, derived in enumerate(space.derived):
        if (derived.flag is None) == (derived.env is None):
            yield Problem(("derived", position), "must set one flag or one variable", "give one of flag or env")
            continue
        target = derived.flag or derived.env or ""
        if target in owners:
            yield Problem(("derived", position), f"sets {target}, as {owners[target]} does", "let one of them set it")
        owners.setdefault(target, "another derived one")
    for name, value in space.engine.environment.items():
        yield from _target(name, value, ("engine", "environment", name))


def _target(target: str, value: Value, where: Where) -> Iterator[Problem]:
    try:
        (flag_name if target.startswith("-") else variable_name)(target)
    except ValueError as error:
        what, _, remedy = str(error).partition(": ")
        yield Problem(where, what, remedy or "write it in full")
        return
    if isinstance(value, bool) and not target.startswith("-"):
        yield Problem(where, f"{shown(value)} is no text for a variable", 'write "1" or "0", as the engine expects it')


def _conditions(space: Space) -> Iterator[Problem]:
    known: dict[str, Parameter] = {}
    every = {parameter.name: parameter for parameter in space.parameters}
    for position, parameter in enumerate(space.parameters):
        if parameter.when:
            yield from _condition(parameter.when, known, every, ("parameters", position, "when"))
        known[parameter.name] = parameter
    for position, derived in enumerate(space.derived):
        if derived.when:
            yield from _condition(derived.when, every, every, ("derived", position, "when"))
    for position, rule in enumerate(space.rules):
        yield from _condition(rule.forbid, every, every, ("rules", position, "forbid"))


def _condition(
    condition: Condition, known: Mapping[str, Parameter], every: Mapping[str, Parameter], where: Where
) -> Iterator[Problem]:
    for name in sorted(condition.names - known.keys()):
        if name in every:
            yield Problem(where, f"{name} comes later in the list", f"move {name} above it")
        else:
            yield Problem(where, f"there is no parameter {name}", near(name, known))
    for test in condition.tests:
        for value in test.values:
            if test.name in known and not known[test.name].allows(value):
                what = f"{test.name} is never {shown(value)}"
                yield Problem(where, what, f"take one of {known[test.name].allowed()}")


def _derived(space: Space) -> Iterator[Problem]:
    every = {parameter.name: parameter for parameter in space.parameters}
    for position, derived in enumerate(space.derived):
        where: Where = ("derived", position, "derive")
        yield from _expression(derived.derive, every, where)


def _expression(expression: Expression, every: Mapping[str, Parameter], where: Where) -> Iterator[Problem]:
    for name in sorted(expression.names):
        if name not in every:
            yield Problem(where, f"there is no parameter {name}", near(name, every))
        elif not any(isinstance(value, int) and not isinstance(value, bool) for value in _samples(every[name])):
            yield Problem(where, f"{name} is never a whole number", "derive from parameters that are")


def _samples(parameter: Parameter) -> tuple[Value, ...]:
    return (parameter.range.low,) if parameter.range else parameter.choices


def _twice(space: Space) -> Iterator[Problem]:
    for key, names in (
        ("parameters", [parameter.name for parameter in space.parameters]),
        ("rules", [rule.name for rule in space.rules]),
        ("enqueue", [one.name for one in space.enqueue]),
    ):
        for position, name in enumerate(names):
            if name in names[:position]:
                yield Problem(
                    (key, position, "name"), f"the name {name!r} is there twice", "give one of them another name"
                )
    levels = [(level.concurrency, level.prompt_tokens) for level in space.benchmark.levels]
    for position, level in enumerate(levels):
        if level in levels[:position]:
            what = f"concurrency {level[0]} is there twice with the same prompts"
            yield Problem(("benchmark", "levels", position), what, "keep one of the two")


def _assignments(space: Space) -> Iterator[Problem]:
    named: list[tuple[Where, Mapping[str, Value]]] = [(("baseline",), space.baseline_values)]
    named += [(("enqueue", at, "assignment"), one.assignment) for at, one in enumerate(space.enqueue)]
    for where, assignment in named:
        try:
            whole = space.complete(assignment)
        except SpaceError as error:
            name, _, rest = str(error).partition(": ")
            what, _, remedy = rest.partition("; ")
            yield Problem((*where, name), what, remedy)
            continue
        for name in assignment:
            if name not in whole:
                condition = space.parameter(name).when
                what = f"{name} does not exist beside the other values"
                yield Problem(
                    (*where, name), what, f"take it away, or make this so: {condition.text() if condition else ''}"
                )
        broken = space.broken_rule(assignment)
        if broken:
            yield Problem(where, f"breaks the rule {broken!r}", "change its values or the rule")
