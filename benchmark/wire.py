"""What goes over the wire: a request's body, and the reading of a streamed answer. No input or output here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from benchmark.plan import Plan
from benchmark.prompts import Prompt

_COUNT_KEY = b'"completion_tokens":'
_COUNT = re.compile(rb"\s*(\d+)\s*[,}]")


class BadAnswer(Exception):
    """The server's answer is an error or cannot be understood; the text says how."""


def request_body(plan: Plan, prompt: Prompt, output_tokens: int) -> dict[str, Any]:
    """The JSON body of a streamed request."""
    if plan.endpoint == "/generate":
        sampling = {"temperature": plan.temperature, "max_new_tokens": output_tokens, "ignore_eos": plan.ignore_eos}
        return {"text": prompt.text, "sampling_params": sampling, "stream": True}
    body: dict[str, Any] = {
        "model": plan.model,
        "temperature": plan.temperature,
        "max_tokens": output_tokens,
        "ignore_eos": plan.ignore_eos,
        "stream": True,
        # Running counts, where the server gives them, tell how many tokens a chunk carries.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if plan.endpoint == "/v1/chat/completions":
        return {**body, "messages": prompt.chat()}
    return {**body, "prompt": prompt.text}


@dataclass(frozen=True)
class Answer:
    """A whole streamed answer. ``itl_ms`` has one entry a token after the first chunk's."""

    text: str
    ttft_ms: float
    latency_ms: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    itl_ms: tuple[float, ...]
    acceptance_length: float | None
    acceptance_rate: float | None
    finish: str


class StreamReader:
    """Reads the server-sent events of one answer as they arrive.

    Light on purpose, since the client shares a core with its own clock: SGLang's cumulative events are searched for
    their token count only, and just the first with content and the last are parsed whole.
    """

    def __init__(self, endpoint: str, started: float) -> None:
        self._native = endpoint == "/generate"
        self._started = started
        self._rest = b""
        self._last_event = b""
        self._ended = False
        self._text: list[str] = []
        self._has_content = False
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._running_counts = True
        # One entry a read that brought content: (seconds, tokens so far, characters so far).
        self._arrivals: list[tuple[float, int, int]] = []
        self._first_token_at: float | None = None
        self._characters = 0
        self.tokens = 0

    def feed(self, data: bytes, at: float) -> int:
        """Bytes that arrived at a time (seconds of the clock that ``started`` is of); how many tokens they brought."""
        before = self.tokens, self._characters
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())
        if self.tokens > before[0] and self._first_token_at is None:
            self._first_token_at = at
        if self._has_content and (self.tokens, self._characters) != before:
            self._arrivals.append((at, self.tokens, self._characters))
        return self.tokens - before[0]

    def _event(self, event: bytes) -> None:
        if event == b"[DONE]":
            self._ended = True
            return
        if self._native and self._has_content and event.endswith(b"}"):
            place = event.rfind(_COUNT_KEY)
            count = _COUNT.match(event, place + len(_COUNT_KEY)) if place >= 0 else None
            if count:
                self._last_event = event
                self.tokens = max(self.tokens, int(count[1]))
                return
        self._parse(event)

    def _parse(self, event: bytes) -> None:
        try:
            value = json.loads(event)
        except ValueError:
            raise BadAnswer(f"an event is not JSON: {_excerpt(event)}") from None
        if not isinstance(value, dict):
            raise BadAnswer(f"an event is no JSON object: {_excerpt(event)}")
        if value.get("error"):
            raise BadAnswer(f"the server answered with an error: {_excerpt(json.dumps(value['error']).encode())}")
        try:
            if self._native:
                self._parse_native(event, value)
            else:
                self._parse_openai(value)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError):
            raise BadAnswer(f"an event has not the form expected: {_excerpt(event)}") from None

    def _parse_native(self, event: bytes, value: dict[str, Any]) -> None:
        self._last_event = b""
        text = str(value.get("text") or "")
        usage = value["meta_info"]
        self._usage = dict(usage)
        self._has_content = self._has_content or bool(text)
        self._text = [text]
        self.tokens = max(self.tokens, int(usage["completion_tokens"]))
        reason = usage.get("finish_reason")
        if reason:
            self._finish = str(reason["type"] if isinstance(reason, dict) else reason)
            if self._finish == "abort":
                raise BadAnswer(f"the server aborted the request: {_excerpt(json.dumps(reason).encode())}")

    def _parse_openai(self, value: dict[str, Any]) -> None:
        for choice in value.get("choices") or ():
            delta = choice.get("delta") or choice
            piece = delta.get("reasoning_content") or delta.get("content") or delta.get("text") or ""
            if piece:
                self._text.append(str(piece))
                self._has_content = True
                self._characters += len(piece)
            if choice.get("finish_reason"):
                self._finish = str(choice["finish_reason"])
        usage = value.get("usage")
        if usage:
            self._usage = {**self._usage, **usage}
            if value.get("choices"):
                self.tokens = max(self.tokens, int(usage["completion_tokens"]))
        elif value.get("choices") and self._finish is None and self._has_content:
            self._running_counts = False
        extension = value.get("sglext") or {}
        self._usage |= {k: v for k, v in (extension.get("spec_tokens_details") or {}).items() if v is not None}

    def answer(self, at: float) -> Answer:
        """The whole answer once the stream has ended at a time. Raises ``BadAnswer`` where it is not whole."""
        if self._last_event:
            self._parse(self._last_event)
        if not self._ended and self._finish is None:
            raise BadAnswer(f"the stream broke off after {self.tokens} tokens; the engine closed the connection")
        try:
            return self._whole(at)
        except (TypeError, ValueError):
            raise BadAnswer(f"usage has not the form expected: {_excerpt(json.dumps(self._usage).encode())}") from None

    def _whole(self, at: float) -> Answer:
        usage = self._usage
        if usage.get("completion_tokens") is None:
            raise BadAnswer("the server sent no usage, so tokens cannot be counted; use the endpoint /generate")
        tokens = int(usage["completion_tokens"])
        first = self._arrivals[0][0] if self._arrivals else self._first_token_at
        if tokens < 1 or first is None:
            raise BadAnswer("the answer has no token")
        last = self._arrivals[-1][0] if self._arrivals else at
        length, rate = usage.get("spec_accept_length"), usage.get("spec_accept_rate")
        return Answer(
            text="".join(self._text),
            ttft_ms=(first - self._started) * 1e3,
            latency_ms=(last - self._started) * 1e3,
            prompt_tokens=int(usage.get("prompt_tokens") or 0),
            output_tokens=tokens,
            cached_tokens=_cached(usage),
            itl_ms=tuple(self._inter_token_ms(tokens)),
            acceptance_length=float(length) if length else None,
            acceptance_rate=float(rate) if length and rate is not None else None,
            finish=self._finish or "unknown",
        )

    def _inter_token_ms(self, tokens: int) -> list[float]:
        """Each gap between arrivals divided over the tokens that came after it.

        Where the server gives no running count, its total is shared out by the characters of each chunk.
        """
        counts = [count for _, count, _ in self._arrivals]
        if not self._native and (not self._running_counts or not any(counts)):
            whole = max(self._characters, 1)
            counts = [round(tokens * characters / whole) for *_, characters in self._arrivals]
        gaps: list[float] = []
        for place in range(1, len(counts)):
            brought = counts[place] - counts[place - 1]
            gap = self._arrivals[place][0] - self._arrivals[place - 1][0]
            gaps.extend([gap * 1e3 / brought] * max(brought, 0) if brought else [])
        return gaps


def _cached(usage: dict[str, Any]) -> int:
    details = usage.get("prompt_tokens_details") or {}
    return int(usage.get("cached_tokens") or details.get("cached_tokens") or 0)


def _excerpt(data: bytes, characters: int = 300) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= characters else text[:characters] + " ..."
