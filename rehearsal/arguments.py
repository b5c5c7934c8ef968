"""The command line: SGLang's flags from a table (flags.txt), read as argparse reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("flags.txt")


class Flag(NamedTuple):
    """One line of flags.txt."""

    names: tuple[str, ...]
    destination: str
    kind: str
    default: Any
    choices: tuple[str, ...]


class UsageError(Exception):
    """The command line is refused as argparse refuses it; the text follows ``error: ``, the exit status is 2."""


class HelpAsked(Exception):
    """``--help`` was given."""


def load_flags(version: str) -> dict[str, Flag]:
    """Name to flag, for a version of SGLang; a flag with aliases is there under each name."""
    flags: dict[str, Flag] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        names, destination, kind, default, choices, where = line.split("\t")
        if where not in ("both", version):
            continue
        flag = Flag(
            tuple(names.split(",")),
            destination,
            kind,
            json.loads(default),
            tuple(choices.split(",")) if choices else (),
        )
        flags.update(dict.fromkeys(flag.names, flag))
        if kind == "boolean":
            flags["--no-" + flag.names[0].removeprefix("--")] = flag
    return flags


def _find(name: str, flags: dict[str, Flag]) -> tuple[str, Flag] | None:
    if name in flags:
        return name, flags[name]
    matches = sorted(known for known in flags if name.startswith("--") and len(name) > 2 and known.startswith(name))
    if len(matches) > 1:
        raise UsageError(f"ambiguous option: {name} could match {', '.join(matches)}")
    return (matches[0], flags[matches[0]]) if matches else None


def _typed(flag: Flag, text: str) -> Any:
    label = "/".join(flag.names)
    kind = flag.kind.removeprefix("list:")
    try:
        readers: dict[str, Any] = {"int": int, "float": float, "json": json.loads}
        value = readers.get(kind, str)(text)
    except ValueError:
        raise UsageError(f"argument {label}: invalid {kind} value: {text!r}") from None
    if flag.choices and str(value) not in flag.choices:
        offered = ", ".join(repr(choice) for choice in flag.choices)
        raise UsageError(f"argument {label}: invalid choice: {text!r} (choose from {offered})")
    return value


def _is_option(word: str) -> bool:
    """Whether a word opens a flag: negative numbers are values, as argparse has it."""
    return word.startswith("-") and not word[1:2].isdigit() and word != "-"


def parse(argv: Sequence[str], flags: dict[str, Flag]) -> dict[str, Any]:
    """The value of each destination, given or default; raises UsageError or HelpAsked."""
    values = {flag.destination: flag.default for flag in flags.values()}
    given: set[str] = set()
    unknown: list[str] = []
    words = list(argv)
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word in ("-h", "--help"):
            raise HelpAsked
        name, equals, attached = word.partition("=")
        found = _find(name, flags) if _is_option(word) else None
        if found is None:
            unknown.append(word)
            continue
        name, flag = found
        given.add(flag.destination)
        if flag.kind in ("switch", "boolean"):
            if equals:
                raise UsageError(f"argument {'/'.join(flag.names)}: ignored explicit argument {attached!r}")
            values[flag.destination] = not name.startswith("--no-") or name in flag.names
            continue
        texts = [attached] if equals else []
        limit = 1 << 30 if flag.kind.startswith("list:") else 1
        while not equals and at < len(words) and len(texts) < limit and not _is_option(words[at]):
            texts.append(words[at])
            at += 1
        if not texts:
            wanted = "at least one argument" if flag.kind.startswith("list:") else "one argument"
            raise UsageError(f"argument {'/'.join(flag.names)}: expected {wanted}")
        typed = [_typed(flag, text) for text in texts]
        values[flag.destination] = typed if flag.kind.startswith("list:") else typed[0]
    if "model_path" not in given:
        raise UsageError("the following arguments are required: --model-path/--model")
    if unknown:
        raise UsageError(f"unrecognized arguments: {' '.join(unknown)}")
    return values
