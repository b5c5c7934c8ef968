"""The winning launch command, as a script that can be run as it is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence


def launch_script(
    command: Sequence[str], environment: Mapping[str, str], *, title: str, facts: Sequence[str], rehearsal: bool
) -> str:
    """A POSIX shell script that starts the engine.

    ``command`` is the engine's whole command line, ``environment`` what lies over the user's own; ``facts`` are
    sentences for the head (study, trial, versions, what was measured).
    """
    lines = ["#!/bin/sh", f"# {title}"]
    if rehearsal:
        lines.append("# REHEARSAL: found with the stand-in engine; every figure is invented. Do not serve with it.")
    lines += [f"# {fact}" for fact in facts]
    lines.append("set -eu")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    words: list[str] = []
    for word in command:
        if word.startswith("--") or not words:
            words.append(shlex.quote(word))
        else:
            words[-1] += " " + shlex.quote(word)
    return "\n".join([*lines, "exec " + " \\\n  ".join(words) + ' "$@"', ""])
