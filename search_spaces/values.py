"""The plain values that a space is made of: numbers, words, true, false, and nothing at all (``unset``)."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

Value = None | bool | int | float | str

_INTEGER = re.compile(r"[-+]?[0-9]+")
_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Value] = {"": None, "~": None, "null": None, "true": True, "false": False}


def read_plain(text: str) -> Value:
    """What an unquoted word means by YAML 1.2: ``on``, ``off``, ``yes``, ``no`` are words, ``1e-5`` is a number."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return text


def read_value(text: str) -> Value:
    """As `read_plain`, and ``unset`` is nothing: the flag or variable is left out."""
    return None if text == "unset" else read_plain(text)


def same(one: Value, other: Value) -> bool:
    """Whether two values are one choice: 1 and 1.0 are, 1 and true are not."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def shown(value: Value) -> str:
    """A value as a person writes it in a space."""
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _validated(value: Any) -> Value:
    if value is None or value == "unset":
        return None
    if isinstance(value, bool | int | float | str):
        return value
    raise ValueError("a single value is needed here (a number, a word, true, false or unset), not a list or a mapping")


ValueField = Annotated[
    Value, PlainValidator(_validated), WithJsonSchema({"type": ["null", "boolean", "integer", "number", "string"]})
]
