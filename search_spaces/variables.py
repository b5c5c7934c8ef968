"""Environment variables in a space: ``${NAME}`` and ``${NAME:-default}``; a default may hold variables too."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_NAME = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)")

# Where variables are replaced; anywhere else they are refused, since they would reach the engine as they stand.
EXPANDED = (("model", "path"), ("engine", "interpreter"), ("engine", "environment"))


def home() -> Path:
    """The folder of the installed rooms: ``${QUIETLANE_HOME}`` in a space, unless the variable says otherwise."""
    return Path(__file__).resolve().parent.parent


def surroundings() -> dict[str, str]:
    """The variables that a space sees: ours, and QUIETLANE_HOME always."""
    return {"QUIETLANE_HOME": str(home()), **os.environ}


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with every variable replaced; an empty variable counts as unset.

    Raises ValueError, in one sentence with the remedy, where a variable without default is unset or a brace is missing.
    """
    expanded = ""
    while (start := text.find("${")) >= 0:
        found = _NAME.match(text, start)
        end = _closing(text, start)
        if found is None or end is None:
            raise ValueError(f"{text[start:]!r} is no variable; write ${{NAME}} or ${{NAME:-default}}")
        name, rest = found[1], text[found.end() : end]
        if rest and not rest.startswith(":-"):
            raise ValueError(f"{text[start : end + 1]!r} is no variable; write ${{{name}}} or ${{{name}:-default}}")
        if not variables.get(name) and not rest:
            raise ValueError(f"the variable {name} is not set; export {name}=... or write ${{{name}:-default}}")
        expanded += text[:start] + (variables.get(name) or expand(rest[2:], variables))
        text = text[end + 1 :]
    return expanded + text


def _closing(text: str, start: int) -> int | None:
    depth = 0
    for position in range(start, len(text)):
        if text.startswith("${", position):
            depth += 1
        elif text[position] == "}":
            depth -= 1
            if depth == 0:
                return position
    return None
