"""Requests in flight: each is paced in true time against absolute deadlines, at the speed that the batch allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from rehearsal.answers import Answer, stream
from rehearsal.log_lines import line, say
from rehearsal.memory import Memory
from rehearsal.model import Times
from rehearsal.settings import Settings

# Serving faster than life would drown two cores in tiny chunks: at most so many a second over all requests then.
CHUNKS_A_SECOND = 2500.0


class Flight:
    """One request on its way: what it has yielded so far."""

    def __init__(self, prompt_tokens: int, cached: int, answer: Answer) -> None:
        self.prompt_tokens, self.cached, self.answer = prompt_tokens, cached, answer
        self.done = 0
        self.steps = 0
        self.drafts_accepted = 0
        self.cut = False


class Decoding:
    """The engine's batch: who runs, who waits, what has been made of how many steps."""

    def __init__(self, times: Times, args: dict[str, Any], memory: Memory, settings: Settings, rank: str) -> None:
        self.times, self.args, self.memory, self.settings, self.rank = times, args, memory, settings, rank
        limit = min(args["max_running_requests"], memory.states or args["max_running_requests"])
        self.slots = asyncio.Semaphore(max(1, limit))
        self.running = 0
        self.waiting = 0
        self.context = 0
        self.prefill_free_at = 0.0
        self.prompt_total = self.generated_total = self.steps_total = self.accepted_total = 0
        self.requests_total = 0
        self.ttft_sum = 0.0
        self.last_throughput = 0.0
        self._batches = 0.0
        self._logged_at = 0.0
        self._logged_tokens = 0
        self._logged_steps = (0, 0)

    @property
    def acceptance_length(self) -> float:
        """Tokens a step since the start, the sure one included."""
        return 1 + self.accepted_total / self.steps_total if self.steps_total else 1.0

    async def run(self, flight: Flight, gone: Callable[[], bool], luck: str) -> AsyncIterator[Flight]:
        """Let a request through; yields it whenever it has new tokens. Ends early when its client is gone."""
        loop = asyncio.get_running_loop()
        scale = self.settings.time_scale
        self.waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        size = flight.prompt_tokens + len(flight.answer.tokens)
        self.context += size
        began = loop.time()
        try:
            prefill = self.times.prefill_ms(flight.prompt_tokens - flight.cached) / 1000 / scale
            self.prefill_free_at = max(began, self.prefill_free_at) + prefill
            due = self.prefill_free_at + self.times.first_token_ms() / 1000 / scale
            self.log_prefill(flight, prefill)
            await _until(loop, due)
            self.requests_total += 1
            self.prompt_total += flight.prompt_tokens
            self.ttft_sum += loop.time() - began
            self._count(flight, min(1, len(flight.answer.tokens)), 0)
            yield flight
            numbers = stream(luck)
            # A request's text accepts a little better or worse than another's.
            bias = 0.93 + 0.14 * next(numbers)
            while flight.done < len(flight.answer.tokens):
                if gone() or flight.cut:
                    flight.cut = True
                    return
                gap = self.running / CHUNKS_A_SECOND if scale > 1 else 0.0
                horizon = loop.time() + gap
                while True:
                    fresh = self.times.accepted(next(numbers) / bias, flight.prompt_tokens + flight.done)
                    if flight.answer.garbage:
                        fresh = 1
                    due += self.times.step_ms(self.running, self.context // max(1, self.running)) / 1000 / scale
                    fresh = min(fresh, len(flight.answer.tokens) - flight.done)
                    self._count(flight, fresh, 1)
                    if due >= horizon or flight.done == len(flight.answer.tokens):
                        break
                await _until(loop, due)
                yield flight
        finally:
            self.running -= 1
            self.context -= size
            self.slots.release()

    def _count(self, flight: Flight, fresh: int, steps: int) -> None:
        flight.done += fresh
        flight.steps += steps
        self.generated_total += fresh
        if steps:
            flight.drafts_accepted += fresh - 1
            self.steps_total += 1
            self.accepted_total += fresh - 1
            self._batches += 1 / max(1, self.running)
            if self._batches >= self.args["decode_log_interval"]:
                self._batches = 0.0
                self._log_decode()

    def usage(self, tokens: int) -> str:
        """The memory fields of a log line, as a hybrid or a plain model prints them."""
        share = tokens / max(1, self.memory.tokens)
        if not self.memory.states:
            return f"#token: {tokens}, token usage: {share:.2f}, "
        states = self.running * 2
        return (
            f"#full token: {tokens}, full token usage: {share:.2f}, mamba num: {states}, "
            f"mamba usage: {min(1.0, states / self.memory.states):.2f}, "
        )

    @property
    def graph_word(self) -> str:
        """What the log calls graphs: those of the GPU or of the CPU."""
        return "cpu" if self.args["device"] == "cpu" else "cuda"

    def log_prefill(self, flight: Flight, seconds: float) -> None:
        """Write the line of a prompt that was read in so many seconds."""
        fresh = flight.prompt_tokens - flight.cached
        share = self.context / max(1, self.memory.tokens)
        usage = f"token usage: {share:.2f}, "
        if self.memory.states:
            usage = f"full {usage}mamba usage: {min(1.0, 2 * self.running / self.memory.states):.2f}, "
        say(
            self.settings.version, "prefill", self.rank, sequences=1, tokens=fresh, cached=flight.cached, usage=usage,
            running=max(0, self.running - 1), queued=self.waiting, pending=0, graph=self.graph_word,
            throughput=fresh / seconds if seconds else 0.0,
        )  # fmt: skip

    def _log_decode(self) -> None:
        now = asyncio.get_running_loop().time()
        fresh = self.generated_total - self._logged_tokens
        self.last_throughput = fresh / (now - self._logged_at) if self._logged_at and now > self._logged_at else 0.0
        steps = self.steps_total - self._logged_steps[0]
        accepted = self.accepted_total - self._logged_steps[1]
        acceptance = ""
        if self.times.speculative:
            rate = accepted / max(1, steps * (self.times.draft_tokens - 1))
            length = 1 + accepted / max(1, steps)
            acceptance = line(self.settings.version, "acceptance", length=length, rate=min(1.0, rate)) or ""
        say(
            self.settings.version, "decode", self.rank, running=self.running, usage=self.usage(self.context),
            acceptance=acceptance, graph=self.graph_word, throughput=self.last_throughput, queued=self.waiting,
            graphs=self.args["device"] != "cpu" and self.running <= self.args["cuda_graph_max_bs_decode"],
        )  # fmt: skip
        self._logged_at, self._logged_tokens = now, self.generated_total
        self._logged_steps = (self.steps_total, self.accepted_total)


async def _until(loop: asyncio.AbstractEventLoop, due: float) -> None:
    """Sleep until an absolute time of the loop's clock; a deadline that has passed costs one turn of the loop."""
    await asyncio.sleep(max(0.0, due - loop.time()))
