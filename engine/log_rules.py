"""What a message of SGLang's means: the patterns of ``log_patterns.yaml``, read once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

_FAR_STAMPED, _FAR_BARE = 64, 240  # characters in front of a pattern: a label of SGLang's; another logger's prefix


@dataclass(frozen=True)
class Rule:
    """One message form; ``contains`` is a literal that every such message has."""

    event: str
    phase: str
    contains: str
    pattern: re.Pattern[str]
    versions: str


@dataclass(frozen=True)
class Event:
    """What one message says: ``groups`` are the pattern's (``elapsed``, ``used``, ``left``), ``versions`` say it so."""

    name: str
    phase: str
    groups: Mapping[str, str | None]
    versions: str = ""

    def number(self, group: str) -> float | None:
        """The group as a number, ``None`` where the message does not say."""
        text = self.groups.get(group)
        return float(text) if text is not None else None


@dataclass(frozen=True)
class Frame:
    """Frames of a traceback (``scheduler.py:init_memory_pools``) that belong to one phase."""

    pattern: re.Pattern[str]
    phase: str


@cache
def _data() -> dict[str, list[Any]]:
    text = resources.files("engine").joinpath("log_patterns.yaml").read_text(encoding="utf-8")
    data: dict[str, list[Any]] = yaml.safe_load(text)
    return data


@cache
def rules() -> tuple[Rule, ...]:
    """Every message form, in the order in which they are tried."""
    return tuple(
        Rule(row["event"], row.get("phase", ""), row["contains"], re.compile(row["pattern"]), row["versions"])
        for row in _data()["messages"]
    )


@cache
def frames() -> tuple[Frame, ...]:
    """Which frames tell which phase, in the order in which they are tried."""
    return tuple(Frame(re.compile(row["frame"]), row["phase"]) for row in _data()["frames"])


@cache
def needles() -> tuple[bytes, ...]:
    """One of these is in every message that a rule matches."""
    return tuple(needle.encode() for needle in _data()["needles"])


def event_of(text: str, stamped: bool) -> Event | None:
    """What a message means for the phases; ``None`` for nearly all of them."""
    for rule in rules():
        if rule.contains in text:
            match = rule.pattern.search(text)
            if match is not None and match.start() <= (_FAR_STAMPED if stamped else _FAR_BARE):
                return Event(rule.event, rule.phase, match.groupdict(), rule.versions)
    return None


_BAR = re.compile(
    rb"(?:(?P<shards>Completed) \| |Capturing [\w ]*\([^)]*\): *\d+%\|[^|]*\| )(?P<done>\d+)/(?P<all>\d+) \["
)


def bar_of(line: bytes) -> Event | None:
    """How far a progress bar is; ``None`` when the line draws none."""
    if b"Completed | " not in line and b"Capturing " not in line:
        return None
    bars = list(_BAR.finditer(line))
    if not bars:
        return None
    last = bars[-1]
    return Event("shards" if last["shards"] else "batches", "", {k: last[k].decode() for k in ("done", "all")})
