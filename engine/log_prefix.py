"""From a physical line to the messages on it: who said them, when, and without what other programs put around them.

SGLang stamps a message ``[2026-11-30 20:27:07 DP1 TP0] text`` (``SGLANG_LOG_MS`` adds ``.123``). Around it come the
prefixes of docker compose, journald, kubectl, Ray or another logger, colours, or a JSON object a line; and a progress
bar without newline puts several messages on one physical line. Known limit: a logging configuration of the user's own
that drops SGLang's stamp drops the ranks too, which are printed nowhere else; such a log reads as that of one rank.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_STAMP = re.compile(
    r"\[(?P<at>20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?)"
    r"(?P<rank>(?: (?:DP|PP|ATTN_CP|MOE_DP|TP|EP)\d+)*)\] ?"
)
# Colours and cursor movements (ECMA-48 control sequences) and operating-system commands such as hyperlinks.
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
_TIME = re.compile(r"(20\d\d-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?")
_BAR = re.compile(r"\d+%(?:\||\s+Completed \|)|it/s|s/it")
_WRAPPERS = re.compile(
    "|".join(
        (
            r"\((?:[\w.-]+ )?pid=\d+(?:, ip=[\d.a-fA-F:]+)?\) ",  # Ray
            r"\[(?:pod|container)/[^\]\s]+\] ",  # kubectl logs --prefix
            # kubectl --timestamps, and the files of a container runtime
            r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) (?:(?:stdout|stderr) [FP] )?",
            r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|20\d\d-\d\d-\d\dT[\d:.]+[+-]\d\d:?\d\d)"
            r" [\w.-]+ [\w.@/-]+(?:\[\d+\])?: ",  # journald, syslog
            r"\[?(?:default|rank)\d+\]?: ?",  # torchrun
            r"[A-Za-z0-9][\w.-]* +\| ",  # docker compose
            r"\d{1,4}: ",  # srun --label
            r"\[?20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[,.]\d+)?\]? (?:[|-] )?(?:[\w.-]+ (?:[|-] )?)?"
            r"\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\]? ?(?:[|:-] |[\w.]+: )?",  # a Python logger
        )
    )
)
_MESSAGE_KEYS = ("message", "msg", "log", "MESSAGE", "event", "text", "body", "short_message")
_TIME_KEYS = ("asctime", "timestamp", "time", "@timestamp", "ts", "created", "__REALTIME_TIMESTAMP", "datetime")
_TRACE_KEYS = ("exc_info", "exception", "traceback", "exc_text", "stack_trace")
_LONGEST_WRAPPER = 200  # characters; what is longer in front of a stamp is a message


@dataclass(frozen=True)
class Message:
    """One message of one process.

    Attributes:
        rank: the prefix as printed (``DP1 TP3``), ``None`` without one.
        at: unix seconds, ``None`` where the line has no time.
        stamped: SGLang put its own stamp before it.
    """

    rank: str | None
    at: float | None
    text: str
    stamped: bool


def _unix(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp.replace(",", ".")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


class Unwrapper:
    """Cuts a line into messages; learns what a log puts in front of SGLang's stamps, to take it off other lines too."""

    def __init__(self) -> None:
        self._learnt: re.Pattern[str] | None = None
        self._learnt_from = ""
        self._second = ""
        self._second_at: float | None = None

    def messages(self, line: str) -> list[Message]:
        """The messages on one line, in order; a JSON object's message may be several lines."""
        if "\0" in line:
            line = line.replace("\0", "")
        if "\x1b" in line:
            line = _ANSI.sub("", line)
        if "{" in line and (unfolded := _json_lines(line)) is not None:
            texts, at = unfolded
            found = [message for text in texts for message in self.messages(text)]
            return [
                message if message.at is not None else Message(message.rank, at, message.text, message.stamped)
                for message in found
            ]
        stamp = _STAMP.match(line)
        if stamp is not None and line.find("[20", stamp.end()) < 0:  # nearly every line of an unwrapped log
            return [Message(stamp["rank"].strip() or None, self._time(stamp["at"]), line[stamp.end() :], True)]
        stamps = list(_STAMP.finditer(line))
        if not stamps:
            text = self._bare(line)
            return [Message(None, _loose_time(line, text), text, False)]
        found = []
        head = line[: stamps[0].start()]
        if head:
            if _BAR.search(head):
                found.append(Message(None, None, self._bare(head), False))
            else:
                self._learn(head)
        ends = [stamp.start() for stamp in stamps[1:]] + [len(line)]
        for stamp, end in zip(stamps, ends, strict=True):
            text = line[stamp.end() : end]
            if text:
                found.append(Message(stamp["rank"].strip() or None, self._time(stamp["at"]), text, True))
        return found

    def _time(self, stamp: str) -> float | None:
        if stamp != self._second:
            self._second, self._second_at = stamp, _unix(stamp)
        return self._second_at

    def _learn(self, head: str) -> None:
        if head == self._learnt_from or len(head) > _LONGEST_WRAPPER or not head.strip():
            return
        self._learnt_from = head
        template = re.sub(r"(?:\\?[0-9])+", r"[0-9]+", re.escape(head))
        if self._learnt is None or self._learnt.pattern != template:
            self._learnt = re.compile(template)

    def _bare(self, line: str) -> str:
        for _ in range(3):
            if self._learnt is not None and (match := self._learnt.match(line)):
                return line[match.end() :]
            if (match := _WRAPPERS.match(line)) is None:
                return line
            line = line[match.end() :]
        return line


_STAMP_BYTES = re.compile(rb"\[(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{3})?)[ \]]")


def first_stamp(region: bytes) -> float | None:
    """The first time that SGLang stamps in these bytes, unix seconds."""
    match = _STAMP_BYTES.search(region)
    return _unix(match[1].decode()) if match else None


def last_stamp(region: bytes) -> float | None:
    """The last time that SGLang stamps in these bytes, unix seconds."""
    at = region.rfind(b"[20")
    while at >= 0:
        match = _STAMP_BYTES.match(region, at)
        if match:
            return _unix(match[1].decode())
        at = region.rfind(b"[20", 0, at)
    return None


def _loose_time(line: str, text: str) -> float | None:
    """The time that a line without SGLang's stamp carries at its front, if any."""
    front = line[: max(len(line) - len(text), 0) + 40]
    match = _TIME.search(front)
    if match is None:
        return None
    fraction = f".{match[3][:6]}" if match[3] else ""
    return _unix(f"{match[1]} {match[2]}{fraction}")


def _json_lines(line: str) -> tuple[list[str], float | None] | None:
    """The message of a log line that is a JSON object, cut at its newlines, and the object's time."""
    begin, end = line.find("{"), line.rfind("}")
    if end < begin or line[begin + 1 : begin + 12].lstrip()[:1] != '"' or _STAMP.search(line, 0, begin):
        return None
    try:
        fields: Any = json.loads(line[begin : end + 1])
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    text = next((fields[key] for key in _MESSAGE_KEYS if isinstance(fields.get(key), str)), None)
    if text is None:
        return None
    trace = next((fields[key] for key in _TRACE_KEYS if isinstance(fields.get(key), str)), "")
    at: float | None = None
    for key in _TIME_KEYS:
        value = fields.get(key)
        if isinstance(value, int | float) and 1e9 < value < 1e11:
            at = float(value)
        elif isinstance(value, str) and (match := _TIME.search(value)):
            fraction = f".{match[3][:6]}" if match[3] else ""
            at = _unix(f"{match[1]} {match[2]}{fraction}")
        if at is not None:
            break
    lines = text.removesuffix("\n").replace("\r", "\n").split("\n")
    return ([*lines, *trace.split("\n")] if trace else lines), at
