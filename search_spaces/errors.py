"""What is wrong with a space, said so that a person can mend it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (keys and positions from the top of the file), what, and what to do."""

    where: tuple[str | int, ...]
    what: str
    remedy: str


class SpaceError(Exception):
    """A space, or an assignment of values to its parameters, cannot be used.

    The text is one sentence a problem, each with file, line, key and remedy where a file is to blame.
    """

    def __init__(self, sentences: str | Sequence[str]) -> None:
        self.sentences = (sentences,) if isinstance(sentences, str) else tuple(sentences)
        super().__init__("\n".join(self.sentences))


def near(word: str, known: Iterable[str]) -> str:
    """A remedy for a misspelt word: the closest known one, else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known here: {', '.join(names)}" if names else "nothing is known here, take it away"
