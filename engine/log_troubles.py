"""The troubles that a log speaks of: exceptions with their frames, refusals of the command line, deaths, and the rest.

Nothing here decides whose fault anything is: ``engine.knowledge`` does. Bounded: the first troubles count, so the first
``_KEPT`` are kept, each with at most a few thousand characters.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from engine.knowledge import is_peer
from engine.log_prefix import Message
from engine.log_rules import frames

Kind = Literal["exception", "parent exception", "refusal", "death", "line", "peer", "timeout"]

_KEPT = 40
_HEAD_LINES, _TAIL_LINES, _LINE = 12, 28, 600
_FRAME = re.compile(r'^\s+File "(?P<path>[^"]+)", line \d+, in (?P<function>\S+)')
_RAISED = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:\.[A-Za-z_]\w*)*)(?:: (?P<text>.*)|:?)$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TRACEBACK = "Traceback (most recent call last):"
_REFUSAL = re.compile(
    r"(?:^|\s)(?P<program>[\w.-]+(?: [\w-]+)?): (?P<text>error: (?:unrecognized arguments|ambiguous option|argument |"
    r"the following arguments are required|one of the arguments|expected |.*not allowed with).*)"
)
_DEATH = re.compile(
    r"Rank (?P<rank>\d+) scheduler died during initialization \(exit code: (?P<code>-?\d+)\)"
    r"|Subprocess (?P<name>\S+) \(pid=\d+\) crashed with exit code (?P<exit>-?\d+)"
)
_TIMEOUT = re.compile(
    r"watchdog timeout \(self\.watchdog_timeout=\S+?, self\.soft=False|Watchdog \w+ timeout|watchdog timeout \(\d+s\)"
)
_HIT, _WARM_UP = "hit an exception", "Initialization failed. warmup error:"
_NATIVE = ("terminate called", "Fatal Python error", "Segmentation fault", "Bus error")
_SIGQUIT = re.compile(r"Received sigquit from a child process|SIGQUIT received\. signum")

# One of these is in every line that any of the above, or any row of the knowledge base, could be about.
NEEDLES = (
    b"rror", b"Traceback", b"xception", b"ailed", b"igquit", b"SIGQUIT", b"Killed", b"crashed", b"imeout", b"imed out",
    b"No space", b"Xid", b"NCCL WARN", b"not available", b"terminate called", b"CRITICAL", b"Not enough",
    b"unbalanced", b"NaN detected", b"aer_unc", b"oom-kill", b"atal",
)  # fmt: skip
# None of the patterns of single lines matches without one of these.
_SINGLE = ("rror", "died during", "crashed", "igquit", "SIGQUIT", "xception", "atchdog", "Killed", "terminate called",
           "ault", "Connection", "roken pipe", "socket closed", "recv failed", "ECONNRESET", "heartbeat")  # fmt: skip


@dataclass
class Trouble:
    """One trouble.

    ``cause`` is the line that says it, ``frames`` are those of its traceback, innermost last, ``order`` is its place.
    """

    kind: Kind
    rank: str | None
    at: float | None
    cause: str
    order: int
    phase: str = ""  # that the rank was in, empty between two
    otherwise: str = ""  # the best guess between two
    frames: tuple[str, ...] = ()
    head: list[str] = field(default_factory=list)
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    after_ready: bool = False
    certain: bool = False  # the engine itself says that it ends
    survived: bool = False  # the start went on after it

    def add(self, line: str) -> None:
        """Keeps one more line of evidence, or drops the middle."""
        (self.head if len(self.head) < _HEAD_LINES else self.tail).append(line[:_LINE])

    def evidence(self) -> str:
        """What the log says about it."""
        return "\n".join([*self.head, *self.tail])

    def phase_of_frames(self) -> str | None:
        """The phase that the frames belong to, innermost first."""
        for frame in reversed(self.frames):
            for known in frames():
                if known.pattern.search(frame):
                    return known.phase
        return None


class TroubleCollector:
    """Gathers troubles, message by message. While ``open`` it wants to see every message of the log."""

    def __init__(self) -> None:
        self.troubles: list[Trouble] = []
        self.fatal = False
        self._block: Trouble | None = None
        self._frames: deque[str] = deque(maxlen=60)
        self._state: Literal["frames", "text", "after"] = "frames"
        self._budget = 0
        self._order = 0

    @property
    def open(self) -> bool:
        """A traceback is being read."""
        return self._block is not None

    def take(self, message: Message, rank: str | None, ready: bool) -> bool:
        """Reads one message of the rank of this name; ``False`` if it is none of the troubles known here."""
        text = message.text
        if self._block is not None and self._continue(message):
            return True
        if _TRACEBACK in text:
            self._open(message, rank, ready)
            return True
        return self._single(message, rank, ready)

    def close(self) -> None:
        """The log has ended, or the start has gone on: what is being read is whole."""
        block, self._block = self._block, None
        if block is None:
            return
        block.frames = tuple(self._frames)
        if not block.cause:
            block.cause = (block.tail or block.head)[-1].strip() if block.head else ""
        if (death := _DEATH.search(block.cause)) is not None:
            block.kind, block.certain, self.fatal = "death", True, True
            block.rank = _dead_rank(death, block.rank)
        elif is_peer(block.cause):
            block.kind = "peer"

    def forget_unproven(self) -> None:
        """The start goes on: a traceback that nobody called an end was not the end."""
        self.troubles = [trouble for trouble in self.troubles if trouble.certain or trouble.kind != "parent exception"]
        for trouble in self.troubles:
            trouble.survived = True

    def _keep(self, trouble: Trouble) -> None:
        if len(self.troubles) < _KEPT:
            self.troubles.append(trouble)
        elif trouble.certain and not any(kept.certain for kept in self.troubles):
            self.troubles[-1] = trouble

    def _new(self, kind: Kind, message: Message, rank: str | None, ready: bool, certain: bool = False) -> Trouble:
        self._order += 1
        trouble = Trouble(kind, rank, message.at, "", self._order, after_ready=ready, certain=certain)
        trouble.add(message.text)
        self.fatal = self.fatal or certain
        self._keep(trouble)
        return trouble

    def _open(self, message: Message, rank: str | None, ready: bool) -> None:
        certain = _HIT in message.text or _WARM_UP in message.text
        kind: Kind = "exception" if certain or message.rank is not None else "parent exception"
        self._block = self._new(kind, message, rank, ready, certain)
        self._frames.clear()
        self._state, self._budget = "frames", 4000

    def _continue(self, message: Message) -> bool:
        """Takes a message into the traceback being read; ``False`` when the traceback has ended before it."""
        block, text = self._block, message.text
        assert block is not None
        self._budget -= 1
        if message.stamped or self._budget < 0 or _SIGQUIT.search(text) or _REFUSAL.search(text):
            self.close()
            return False
        if not text.strip():
            if self._state == "text":
                self._state = "after"
            return True
        if self._state == "after" and not text.startswith(_CHAINED) and _TRACEBACK not in text:
            self.close()
            return False
        if _TRACEBACK in text or text.startswith(_CHAINED):
            self._state = "frames"
        elif (frame := _FRAME.match(text)) is not None:
            self._state = "frames"
            self._frames.append(f"{frame['path'].rsplit('/', 1)[-1]}:{frame['function']}")
        elif self._state == "frames" and not text[:1].isspace() and _RAISED.match(text):
            block.cause, self._state = text.strip(), "text"
        elif self._state == "text" and block.cause.endswith(":"):
            block.cause = f"{block.cause} {text.strip()}"
        block.add(text)
        return True

    def _single(self, message: Message, rank: str | None, ready: bool) -> bool:
        text = message.text.strip()
        for literal in _SINGLE:  # a loop, not any(): see is_noise
            if literal in text:
                break
        else:
            return False
        if (refusal := _REFUSAL.search(text)) is not None:
            self._new("refusal", message, "main", ready, certain=True).cause = refusal["text"]
        elif (death := _DEATH.search(text)) is not None:
            self._new("death", message, _dead_rank(death, rank), ready, certain=True).cause = text
        elif _SIGQUIT.search(text):
            self._new("peer", message, rank, ready, certain=True).cause = text
        elif _HIT in text or _WARM_UP in text:
            self._open(message, rank, ready)
        elif _TIMEOUT.search(text):
            self._new("timeout", message, rank, ready, certain=True).cause = text
        elif text == "Killed" or text.startswith(_NATIVE):
            self._new("death", message, rank, ready, certain=True).cause = text
        elif is_peer(text):
            self._new("peer", message, rank, ready).cause = text
        else:
            return False
        return True

    def note(self, message: Message, rank: str | None, ready: bool) -> None:
        """Keeps a line that the knowledge base knows, for want of anything better."""
        self._new("line", message, rank, ready).cause = message.text.strip()


def _dead_rank(death: re.Match[str], rank: str | None) -> str | None:
    if death["rank"] is not None:
        return f"TP{death['rank']}"
    return rank
