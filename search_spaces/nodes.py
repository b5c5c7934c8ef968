"""The text of a YAML file as plain values, with the line of each: nothing is constructed, nothing runs.

Plain words mean what YAML 1.2 says (`search_spaces.values`), so ``off`` is a word. Refused, each with its line: a
key given twice, a tag (``!!python/...`` and any other), an alias, a second document.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import AliasEvent

from search_spaces.errors import Problem
from search_spaces.values import read_plain

Where = tuple[str | int, ...]
_DEEPEST = 40


class Unreadable(Exception):
    """The text is no YAML that a space may be written in."""

    def __init__(self, problem: Problem, line: int) -> None:
        super().__init__(problem.what)
        self.problem = problem
        self.line = line


@dataclass
class Document:
    """Plain values, and the line (from 1) of every key and every item."""

    values: Any
    lines: dict[Where, int] = field(default_factory=dict)

    def line(self, where: Where) -> int:
        """The line of a place; of the nearest place above it that the file has, where it is missing."""
        while where and where not in self.lines:
            where = where[:-1]
        return self.lines.get(where, 1)

    def key(self, where: Where) -> str:
        """A place as a person names it: ``parameters.steps.range``, items by their names where they have one."""
        words: list[str] = []
        value = self.values
        for step in where:
            value = _inside(value, step)
            name = value.get("name") if isinstance(step, int) and isinstance(value, dict) else None
            words.append(str(name if name is not None else step + 1 if isinstance(step, int) else step))
        return ".".join(words)


class _Loader(yaml.SafeLoader):
    """Composes nodes only."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        line = event.start_mark.line + 1
        if isinstance(event, AliasEvent):
            raise Unreadable(Problem((), f"*{event.anchor} repeats another place", "write it out"), line)
        tag = getattr(event, "tag", None)
        if tag not in (None, "!"):
            raise Unreadable(Problem((), f"the tag {tag} is not allowed", "write a plain value"), line)
        return super().compose_node(parent, index)


def read_nodes(text: str) -> Document:
    """Values and lines of a text. Raises Unreadable."""
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"this is no YAML ({error.problem or error.context})"
        raise Unreadable(
            Problem((), what, "check indentation, colons and quotes"), mark.line + 1 if mark else 1
        ) from None
    except yaml.YAMLError as error:
        what = f"this is no YAML ({str(error).splitlines()[0]})"
        raise Unreadable(Problem((), what, "save it as plain UTF-8 text"), 1) from None
    except RecursionError:
        raise Unreadable(Problem((), "lists and mappings are nested too deep", "take levels away"), 1) from None
    document = Document(None)
    document.values = _plain(node, (), document.lines) if node else None
    return document


def _plain(node: yaml.Node, where: Where, lines: dict[Where, int]) -> Any:
    lines.setdefault(where, node.start_mark.line + 1)
    if len(where) > _DEEPEST:
        raise Unreadable(Problem(where, "lists and mappings are nested too deep", "take levels away"), lines[where])
    if isinstance(node, yaml.ScalarNode):
        return read_plain(node.value) if node.style is None else node.value
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*where, position), lines) for position, item in enumerate(node.value)]
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise Unreadable(Problem(where, "a key must be a single word", "name it by one word"), line)
        if key.value in values:
            first = lines[(*where, key.value)]
            what = f"the key is given twice, first in line {first}"
            raise Unreadable(Problem((*where, key.value), what, "keep one of the two"), line)
        lines[(*where, key.value)] = line
        values[key.value] = _plain(value, (*where, key.value), lines)
    return values


def _inside(value: Any, step: str | int) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step]
    return None
