"""Conditions of a space: when a parameter exists, and what a rule forbids.

A mapping holds when every line of it holds; a list of mappings when one of them does::

    {speculation: nextn, steps: ">= 2"}
    [{speculation: off}, {topk: [1, 2]}]

A line is the name of a parameter and a test: a value (``nextn``, ``true``, ``unset``), a list of values, or a
comparison: ``"== x"`` and ``"!= x"`` with a value, ``"< e"``, ``"<= e"``, ``"> e"``, ``">= e"`` with a decimal number
or a whole-number expression (`search_spaces.derivation`) as in ``"> steps + 1"``. Every test of an inactive parameter
fails, ``!=`` too.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.derivation import Expression, parse_expression
from search_spaces.values import Value, read_value, same, shown

_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*(.*?)\s*")
_ORDER: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Test:
    """One test of one parameter. ``values`` for being one (``==``) or none (``!=``) of them, else ``bound``."""

    __test__ = False  # not a test case of pytest

    name: str
    comparison: str
    values: tuple[Value, ...] = ()
    bound: Expression | float | None = None

    def holds(self, assignment: Mapping[str, Value]) -> bool:
        """Whether the assignment passes; never where the parameter is inactive."""
        if self.name not in assignment:
            return False
        value = assignment[self.name]
        if self.comparison in ("==", "!="):
            return any(same(value, one) for one in self.values) == (self.comparison == "==")
        bound = self.bound.value(assignment) if isinstance(self.bound, Expression) else self.bound
        if bound is None or isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return _ORDER[self.comparison](value, bound)

    def text(self) -> str:
        """The test as a person would write it."""
        if self.values:
            listed = ", ".join(shown(value) for value in self.values)
            return f"{self.name} {self.comparison} {listed}"
        return f"{self.name} {self.comparison} {getattr(self.bound, 'source', self.bound)}"


@dataclass(frozen=True)
class Condition:
    """Alternatives, one of which must hold; each a number of tests that must all hold."""

    source: Any
    alternatives: tuple[tuple[Test, ...], ...]

    def holds(self, assignment: Mapping[str, Value]) -> bool:
        """Whether one alternative holds in an assignment of the active parameters."""
        return any(all(test.holds(assignment) for test in tests) for tests in self.alternatives)

    @property
    def tests(self) -> tuple[Test, ...]:
        """All tests of all alternatives."""
        return tuple(test for tests in self.alternatives for test in tests)

    @property
    def names(self) -> frozenset[str]:
        """The parameters that the condition speaks of."""
        bounds = [test.bound.names for test in self.tests if isinstance(test.bound, Expression)]
        return frozenset(test.name for test in self.tests).union(*bounds)

    def text(self) -> str:
        """The condition as a person would say it."""
        return " or ".join(" and ".join(test.text() for test in tests) for tests in self.alternatives)


def parse_condition(source: Any) -> Condition:
    """The condition in a mapping or a list of mappings. Raises ValueError, in one sentence, at anything else."""
    alternatives = source if isinstance(source, list) else [source]
    if not alternatives or not all(isinstance(one, dict) and one for one in alternatives):
        raise ValueError("a condition is a mapping such as {speculation: nextn}, or a list of such mappings")
    return Condition(source, tuple(tuple(_test(name, test) for name, test in one.items()) for one in alternatives))


def _test(name: str, test: Any) -> Test:
    if isinstance(test, dict):
        raise ValueError(f"the test of {name!r} must be a value, a list of values or a comparison like '>= 2'")
    if isinstance(test, list):
        if not test or any(isinstance(value, list | dict) for value in test):
            raise ValueError(f"the test of {name!r} must list single values, as in [1, 2]")
        return Test(name, "==", tuple(None if value == "unset" else value for value in test))
    found = _COMPARISON.fullmatch(test) if isinstance(test, str) else None
    if found is None:
        return Test(name, "==", (None if test == "unset" else test,))
    comparison, operand = found.groups()
    if not operand:
        raise ValueError(f"the comparison {test!r} of {name!r} lacks what to compare with")
    if comparison in ("==", "!="):
        return Test(name, comparison, (read_value(operand),))
    number = read_value(operand)
    if isinstance(number, float):
        return Test(name, comparison, bound=number)
    return Test(name, comparison, bound=parse_expression(operand))
