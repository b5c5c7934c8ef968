"""Flags that go by another name in the installed SGLang, explained beside its own words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import yaml

TABLE = Path(__file__).with_name("renamed_flags.yaml")


@cache
def _table() -> dict[str, dict[str, str]]:
    return yaml.safe_load(TABLE.read_text())


def explain_renamed(arguments: Sequence[str], known_flags: Collection[str]) -> str:
    """A sentence for each given flag that the installed version does not know and has another name for; else empty."""
    sentences = []
    for argument in dict.fromkeys(argument.partition("=")[0] for argument in arguments):
        entry = _table().get(argument)
        if entry is None or argument in known_flags:
            continue
        new = entry["now"]
        if new.partition("=")[0] in known_flags:
            sentences.append(f"{argument} is now {new} (the old name is gone since {entry['removed']}).")
    return " ".join(sentences)
