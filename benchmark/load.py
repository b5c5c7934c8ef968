"""Loading a running engine at one level: a closed loop with exactly so many requests in flight."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp

from benchmark import observers as observing
from benchmark.figures import is_steady, measurement_of
from benchmark.observers import Observer
from benchmark.plan import Plan
from benchmark.prompt_source import LevelPrompts, PromptSource
from benchmark.prompts import Prompt
from benchmark.results import Level, Measurement, RequestSample
from benchmark.wire import Answer, BadAnswer, StreamReader, request_body

# How often the engine is asked whether it still lives, in seconds.
CHECK_EVERY_S = 0.1
# SGLang closes connections that were idle for five seconds; ours are given up before, so that none dies in use.
KEEP_ALIVE_S = 3.0

T = TypeVar("T")


def measure(
    url: str,
    level: Level,
    prompts: PromptSource,
    plan: Plan,
    check: Callable[[], None] | None = None,
    *,
    observers: Sequence[Observer] = (),
) -> Measurement:
    """Warm up at a level until throughput is steady, then measure it.

    Whatever goes wrong with a request (refusal, disconnect, timeout, malformed answer) is counted and never raised.
    ``check`` is called ten times a second, and what it raises ends the measurement and is raised here.
    Throughput is output tokens of completed requests over the whole time from the first start to the last end,
    its beginning and its tail included, as ``sglang.bench_serving`` has it.
    """
    return run_loop(guarded(_measure(url, level, prompts, plan, observers), check))


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, in a thread of its own where this one already runs a loop.

    The garbage collector leaves alone what exists already: a full pass over a flow's objects stops the clock for
    tens of milliseconds.
    """
    gc.freeze()
    try:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        return _in_thread(work)
    finally:
        gc.unfreeze()


def _in_thread(work: Coroutine[Any, Any, T]) -> T:
    outcome: list[T] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:  # handed over to the caller's thread
            failure.append(error)

    thread = threading.Thread(target=body, name="quietlane load")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


async def guarded(work: Coroutine[Any, Any, T], check: Callable[[], None] | None) -> T:
    """The work's result, or at once what ``check`` raises."""
    if check is None:
        return await work
    check_now = check
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            check_now()
            await asyncio.wait({task}, timeout=CHECK_EVERY_S)
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def client(plan: Plan) -> aiohttp.ClientSession:
    """A session that never queues requests of its own."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=plan.request_timeout_s),
        headers=plan.headers(),
    )


@dataclass
class _Traffic:
    """Everything sent to one engine at one level."""

    session: aiohttp.ClientSession
    url: str
    plan: Plan
    tokens: int = 0
    ended: int = 0
    last_latency_s: float = 0.0
    failures_in_a_row: int = 0
    origin: float = field(default_factory=time.perf_counter)

    async def send(self, prompt: Prompt, output_tokens: int) -> tuple[RequestSample, str]:
        """One request to its end; the sample and the text."""
        started = time.perf_counter()
        try:
            answer = await self._exchange(prompt, output_tokens, started)
        except (BadAnswer, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            ended = time.perf_counter()
            self.failures_in_a_row += 1
            sample = RequestSample(
                started - self.origin, (ended - started) * 1e3, None, 0, 0, error=_reason(error, self.plan)
            )
            text = ""
        else:
            self.failures_in_a_row = 0
            self.last_latency_s = answer.latency_ms / 1e3
            sample, text = _sample(answer, started - self.origin), answer.text
        self.ended += 1
        return sample, text

    async def _exchange(self, prompt: Prompt, output_tokens: int, started: float) -> Answer:
        reader = StreamReader(self.plan.endpoint, started)
        body = request_body(self.plan, prompt, output_tokens)
        async with self.session.post(self.url + self.plan.endpoint, json=body) as response:
            if response.status != 200:
                text = (await response.content.read(2000)).decode(errors="replace")
                raise BadAnswer(f"HTTP {response.status}: {text[:300]}")
            while data := await response.content.readany():
                self.tokens += reader.feed(data, time.perf_counter())
        return reader.answer(time.perf_counter())


def _sample(answer: Answer, started_s: float) -> RequestSample:
    return RequestSample(
        started_s=started_s,
        latency_ms=answer.latency_ms,
        ttft_ms=answer.ttft_ms,
        prompt_tokens=answer.prompt_tokens,
        output_tokens=answer.output_tokens,
        cached_tokens=answer.cached_tokens,
        itl_ms=answer.itl_ms,
        acceptance_length=answer.acceptance_length,
        acceptance_rate=answer.acceptance_rate,
    )


def _reason(error: Exception, plan: Plan) -> str:
    if isinstance(error, TimeoutError):
        return f"timed out after {plan.request_timeout_s:g} s"
    return str(error) or type(error).__name__


async def _measure(
    url: str, level: Level, source: PromptSource, plan: Plan, observers: Sequence[Observer]
) -> Measurement:
    prompts = source.begin(level)
    async with client(plan) as session:
        traffic = _Traffic(session, url.rstrip("/"), plan)
        if level.prompt_tokens:
            await _calibrate(traffic, prompts)
        steady, warm_up_s = await _warm_up(traffic, level, prompts) if plan.warm_up_s else (False, 0.0)
        for observer in observers:
            observer.before_start()
        started_at = time.time()
        samples, duration_s = await _measured(traffic, level, prompts, observers)
        findings = [observer.after_finish() for observer in observers]
    measurement = measurement_of(
        level, samples, started_at=started_at, duration_s=duration_s, warm_up_s=warm_up_s, steady=steady, plan=plan
    )
    return observing.apply(measurement, findings)


async def _calibrate(traffic: _Traffic, prompts: LevelPrompts) -> None:
    """Let the server count two prompts, so that the next ones have the length asked for."""
    for index in range(2):
        prompt = prompts.calibration(index)
        sample, _ = await traffic.send(prompt, 1)
        prompts.learn(prompt, sample.prompt_tokens)


async def _warm_up(traffic: _Traffic, level: Level, prompts: LevelPrompts) -> tuple[bool, float]:
    """Keep the level's load up until throughput is steady, then let what is in flight end; (steady, seconds)."""
    plan = traffic.plan
    began = time.perf_counter()
    over = asyncio.Event()
    issued = 0

    async def slot() -> None:
        nonlocal issued
        while not over.is_set():
            issued += 1
            await traffic.send(prompts.warm_up(issued - 1), level.output_tokens)
            if _hopeless(traffic, level):
                over.set()

    async def watch() -> bool:
        rates: list[float] = []
        while not over.is_set():
            tokens, since = traffic.tokens, time.perf_counter()
            # A window holds at least a whole request, lest prefill and decoding look like two speeds.
            window = max(plan.warm_up_window_s, traffic.last_latency_s)
            left = plan.warm_up_s - (since - began)
            if left <= 0:
                break
            try:
                await asyncio.wait_for(over.wait(), min(window, left))
            except TimeoutError:
                rates.append((traffic.tokens - tokens) / (time.perf_counter() - since))
            if traffic.ended and is_steady(rates, plan.warm_up_windows, plan.warm_up_steadiness_percent):
                return True
        return False

    slots = [asyncio.ensure_future(slot()) for _ in range(level.concurrency)]
    try:
        steady = await watch()
    finally:
        over.set()
    await asyncio.gather(*slots)
    return steady, time.perf_counter() - began


async def _measured(
    traffic: _Traffic, level: Level, prompts: LevelPrompts, observers: Sequence[Observer]
) -> tuple[list[RequestSample], float]:
    """The measured requests in the order in which they ended, and the seconds that they took together."""
    plan = traffic.plan
    samples: list[RequestSample] = []
    issued = 0
    traffic.failures_in_a_row = 0
    traffic.origin = began = time.perf_counter()

    def another() -> bool:
        elapsed = time.perf_counter() - began
        if _hopeless(traffic, level) or (plan.max_level_s and elapsed > plan.max_level_s):
            return False
        return issued < level.requests or elapsed < plan.min_level_s

    async def slot() -> None:
        nonlocal issued
        while another():
            prompt = prompts.measured(issued)
            issued += 1
            sample, text = await traffic.send(prompt, level.output_tokens)
            samples.append(sample)
            if sample.error is None:
                for observer in observers:
                    observer.answered(prompt, text, sample)

    await asyncio.gather(*(slot() for _ in range(level.concurrency)))
    return samples, time.perf_counter() - began


def _hopeless(traffic: _Traffic, level: Level) -> bool:
    """Failures only, as many as fill every slot and more: going on would only burn time."""
    return traffic.failures_in_a_row >= max(level.concurrency, 8)
