"""Which release of SGLang wrote a log.

SGLang does not print its version, but a log gives it away, in this order of strength:

1. the dump of the arguments (``server_args=``), or the usage text of a refusal, names every argument, and each release
   has new ones: the answer is one release;
2. the line numbers of SGLang's own files in warnings and tracebacks;
3. the wording of the messages.

The answer is a release (``0.5.17``) where the evidence leaves one, else a range (``0.5.21-0.5.23``), else ``None``. A
post release is told as its release, and one newer than all known ones as the newest known. The names and lines are
data: ``log_versions.yaml``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

_ENOUGH = 2  # new names that tell a release: some are never printed, and forks take a single one over early
_PLACE = re.compile(r'sglang/(?:[\w/]+/)?(?P<file>\w+\.py)(?::|", line )(?P<line>\d+)')
_NAME = re.compile(r"[a-z][a-z0-9_-]+")
_USAGE = re.compile(r"^usage: (?:sglang|launch_server|__main__|python)")

# One of these is in every line outside tracebacks that names a place or begins a usage text.
NEEDLES = (b": UserWarning: ", b" [-h] ")


@dataclass(frozen=True)
class Release:
    """One release: names new in it, names gone with it, and (file, line) pairs that it prints."""

    name: str
    added: frozenset[str]
    removed: frozenset[str]
    places: frozenset[tuple[str, int]]


@cache
def releases() -> tuple[Release, ...]:
    """The releases known, oldest first."""
    text = resources.files("engine").joinpath("log_versions.yaml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = yaml.safe_load(text)["releases"]
    return tuple(
        Release(
            row["release"],
            frozenset(row.get("added", ())),
            frozenset(row.get("removed", ())),
            frozenset((file, line) for file, lines in row["lines"].items() for line in lines),
        )
        for row in rows
    )


@cache
def _index(name: str) -> int | None:
    return next((place for place, release in enumerate(releases()) if release.name == name), None)


class Versions:
    """Narrows the releases down, piece by piece of a log."""

    def __init__(self) -> None:
        self._by_names: int | None = None
        self._possible = set(range(len(releases())))
        self._informed = False
        self._usage: set[str] | None = None
        self._dump = ""

    @property
    def reading_usage(self) -> bool:
        """A usage text is being printed: it wants every line."""
        return self._usage is not None

    def read_line(self, text: str) -> None:
        """Reads a message: a place in a file, or a line of a usage text."""
        if self._usage is not None:
            if not text or text[0].isspace():
                self._usage.update(name.replace("-", "_") for name in _NAME.findall(text))
                return
            names, self._usage = self._usage, None
            self._read_names(names)
        if self._by_names is not None:
            return
        if _USAGE.match(text):
            self._usage = set()
        elif "sglang/" in text:
            for place in _PLACE.finditer(text):
                pair = (place["file"], int(place["line"]))
                self._narrow({i for i, release in enumerate(releases()) if pair in release.places})

    def read_wording(self, versions: str) -> None:
        """A message of a form that these versions (``0.5.11-0.5.20``) print has been read."""
        if self._by_names is not None:
            return
        ends = [_index(name) for name in re.findall(r"\d+\.\d+\.\d+", versions)]
        if ends and ends[0] is not None and ends[-1] is not None:
            self._narrow(set(range(ends[0], ends[-1] + 1)))

    def read_arguments(self, dump: str) -> None:
        """Reads the dump of the arguments."""
        if dump == self._dump:
            return
        self._dump = dump
        self._read_names(set(re.findall(r"(?:^|[{(,]) ?'?([a-z]\w+)'?[=:]", dump)))

    def answer(self) -> str | None:
        """The release, or the range that is left, or ``None``."""
        if self._by_names is not None:
            return releases()[self._by_names].name
        if not self._informed:
            return None
        known = sorted(self._possible)
        first, last = releases()[known[0]].name, releases()[known[-1]].name
        return first if first == last else f"{first}-{last}"

    def _narrow(self, told: set[int]) -> None:
        if left := self._possible & told:
            self._possible = left
            self._informed = True

    def _read_names(self, names: set[str]) -> None:
        if len(names) < 100:  # not a whole list
            return
        latest = 0
        for place, release in enumerate(releases()):
            if len(release.added & names) >= _ENOUGH:
                latest = place
        self._by_names = latest
