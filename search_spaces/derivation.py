"""Whole-number expressions of a space: ``steps + 1``, ``max(steps + 1, steps * topk)``.

Names of parameters, integers, ``+``, ``-``, ``*``, parentheses, ``min(...)`` and ``max(...)``; nothing else exists,
and no text of a space is ever run as code.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.values import Value

_LONGEST = 200  # characters; it also bounds how deep parentheses nest
_TOKEN = re.compile(r"\s*(?:(?P<number>[0-9]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<sign>[-+*(),]))")

_MEANING: dict[str, Callable[[list[int]], int]] = {
    "+": sum,
    "-": lambda numbers: numbers[0] - numbers[1],
    "*": math.prod,
    "min": min,
    "max": max,
}

# A number, a name, or an operator with what it stands between.
Node = int | str | tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Expression:
    """A parsed expression. ``names`` are the parameters that it needs."""

    source: str
    tree: Node
    names: frozenset[str]

    def value(self, assignment: Mapping[str, Value]) -> int | None:
        """The number, or ``None`` where a parameter that it needs is inactive, unset or no whole number."""
        for name in self.names:
            given = assignment.get(name)
            if not isinstance(given, int) or isinstance(given, bool):
                return None
        return _evaluated(self.tree, assignment)


def parse_expression(source: Any) -> Expression:
    """The expression in a text. Raises ValueError, in one sentence, at what is no expression."""
    text = str(source) if isinstance(source, str | int) and not isinstance(source, bool) else ""
    if not text.strip():
        raise ValueError(f"{source!r} is no expression such as 'steps + 1'")
    if len(text) > _LONGEST:
        raise ValueError(f"an expression of {len(text)} characters is too long, {_LONGEST} are allowed")
    tokens = list(_tokens(text))
    tree, rest = _sum(tokens, 0)
    if rest != len(tokens):
        raise ValueError(f"{tokens[rest]!r} in {text!r} comes where an operator or the end should be")
    return Expression(text, tree, frozenset(_names(tree)))


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if not found:
            raise ValueError(
                f"{text[position:].strip()[0]!r} in {text!r} is not allowed; use names, whole numbers, + - * min max"
            )
        yield found[0].strip()
        position = found.end()


def _sum(tokens: list[str], at: int) -> tuple[Node, int]:
    left, at = _product(tokens, at)
    while at < len(tokens) and tokens[at] in "+-":
        sign = tokens[at]
        right, at = _product(tokens, at + 1)
        left = (sign, (left, right))
    return left, at


def _product(tokens: list[str], at: int) -> tuple[Node, int]:
    left, at = _factor(tokens, at)
    while at < len(tokens) and tokens[at] == "*":
        right, at = _factor(tokens, at + 1)
        left = ("*", (left, right))
    return left, at


def _factor(tokens: list[str], at: int) -> tuple[Node, int]:
    if at >= len(tokens):
        raise ValueError("the expression ends where a name or a number should be")
    token = tokens[at]
    if token == "-":
        inner, at = _factor(tokens, at + 1)
        return ("-", (0, inner)), at
    if token == "(":
        inner, at = _sum(tokens, at + 1)
        return inner, _after(tokens, at, ")")
    if token in ("min", "max"):
        return _call(tokens, at)
    if token.isdigit():
        return int(token), at + 1
    if token[0].isalpha() or token[0] == "_":
        return token, at + 1
    raise ValueError(f"{token!r} comes where a name or a number should be")


def _call(tokens: list[str], at: int) -> tuple[Node, int]:
    name = tokens[at]
    at = _after(tokens, at + 1, "(")
    first, at = _sum(tokens, at)
    given = [first]
    while at < len(tokens) and tokens[at] == ",":
        following, at = _sum(tokens, at + 1)
        given.append(following)
    return (name, tuple(given)), _after(tokens, at, ")")


def _after(tokens: list[str], at: int, expected: str) -> int:
    if at >= len(tokens) or tokens[at] != expected:
        raise ValueError(
            f"{expected!r} is missing" + (f" before {tokens[at]!r}" if at < len(tokens) else " at the end")
        )
    return at + 1


def _names(tree: Node) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, tuple):
        for part in tree[1]:
            yield from _names(part)


def _evaluated(tree: Node, assignment: Mapping[str, Value]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return int(assignment[tree] or 0)
    operator, parts = tree
    numbers = [_evaluated(part, assignment) for part in parts]
    return _MEANING[operator](numbers)
