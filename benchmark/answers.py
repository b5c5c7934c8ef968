"""Greedy answers to a fixed set of prompts: what the correctness gate compares."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

import aiohttp

from benchmark.load import client, guarded, run_loop
from benchmark.plan import Plan
from benchmark.prompts import Prompt, load

# Long enough for a loop or a language to show, short enough for a few seconds in all.
ANSWER_TOKENS = 64
# In flight at a time: several, so that batched decoding is seen too.
AT_A_TIME = 4
# A token outside the reference's first five is no near tie.
TOP_TOKENS = 5


@dataclass(frozen=True)
class GreedyAnswer:
    """One greedy answer.

    Attributes:
        tokens: ids, empty where the endpoint does not tell them.
        logprobs: natural logarithms of each token's probability; ``nan`` where the engine gave no number.
        alternatives: for each position the likeliest tokens as (id, logprob), likeliest first.
        finish: ``stop``, ``length`` or what else the engine says.
        error: why there is no answer, else ``None``.
    """

    text: str
    output_tokens: int
    finish: str = "length"
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    alternatives: tuple[tuple[tuple[int, float], ...], ...] = field(default=(), repr=False)
    acceptance_length: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Answers:
    """The answers of one engine to the gate's prompts, in the order of the prompts."""

    prompts: tuple[str, ...]
    answers: tuple[GreedyAnswer, ...]

    def as_json(self) -> str:
        """Text for an artifact; ``from_json`` reads it."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Answers:
        """Answers recorded earlier."""
        value = json.loads(text)
        answers = tuple(
            GreedyAnswer(
                **{
                    **answer,
                    "tokens": tuple(answer["tokens"]),
                    "logprobs": tuple(answer["logprobs"]),
                    "alternatives": tuple(
                        tuple((int(token), float(logprob)) for token, logprob in position)
                        for position in answer["alternatives"]
                    ),
                }
            )
            for answer in value["answers"]
        )
        return cls(tuple(value["prompts"]), answers)


def gate_prompts() -> tuple[Prompt, ...]:
    """The fixed prompts of the gate (other texts than those that load is made of)."""
    with resources.as_file(resources.files("benchmark").joinpath("prompts", "gate.jsonl")) as path:
        return load(path)


def collect(
    url: str,
    prompts: Sequence[Prompt] | None = None,
    plan: Plan | None = None,
    check: Callable[[], None] | None = None,
    output_tokens: int = ANSWER_TOKENS,
) -> Answers:
    """Ask an engine all prompts greedily; whatever goes wrong with a request becomes that answer's ``error``.

    Log-probabilities come with SGLang's ``/generate``; where an engine refuses them, it is asked without.
    ``check`` is called ten times a second, and what it raises is raised here.
    """
    asked = tuple(prompts) if prompts is not None else gate_prompts()
    return run_loop(guarded(_collect(url.rstrip("/"), asked, plan or Plan(), output_tokens), check))


async def _collect(url: str, prompts: Sequence[Prompt], plan: Plan, output_tokens: int) -> Answers:
    gate = asyncio.Semaphore(AT_A_TIME)
    async with client(plan) as session:

        async def one(prompt: Prompt) -> GreedyAnswer:
            async with gate:
                try:
                    return await _ask(session, url, prompt, plan, output_tokens)
                except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
                    reason = str(error) or type(error).__name__
                    return GreedyAnswer("", 0, finish="error", error=reason[:1000])

        answers = await asyncio.gather(*(one(prompt) for prompt in prompts))
    return Answers(tuple(prompt.text for prompt in prompts), tuple(answers))


async def _ask(
    session: aiohttp.ClientSession, url: str, prompt: Prompt, plan: Plan, output_tokens: int
) -> GreedyAnswer:
    if plan.endpoint != "/generate":
        return await _ask_openai(session, url, prompt, plan, output_tokens)
    body: dict[str, Any] = {
        "text": prompt.text,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": output_tokens},
        "return_logprob": True,
        "top_logprobs_num": TOP_TOKENS,
    }
    status, value = await _post(session, url + plan.endpoint, body)
    if status != 200:
        del body["return_logprob"], body["top_logprobs_num"]
        status, value = await _post(session, url + plan.endpoint, body)
    if status != 200:
        raise ValueError(f"HTTP {status}: {json.dumps(value)[:300]}")
    return native_answer(value)


async def _ask_openai(
    session: aiohttp.ClientSession, url: str, prompt: Prompt, plan: Plan, output_tokens: int
) -> GreedyAnswer:
    body: dict[str, Any] = {"model": plan.model, "temperature": 0.0, "max_tokens": output_tokens}
    chat = plan.endpoint == "/v1/chat/completions"
    body |= {"messages": prompt.chat()} if chat else {"prompt": prompt.text}
    status, value = await _post(session, url + plan.endpoint, body)
    if status != 200:
        raise ValueError(f"HTTP {status}: {json.dumps(value)[:300]}")
    choice = value["choices"][0]
    message = choice["message"] if chat else choice
    text = message.get("content") or message.get("text") or ""
    return GreedyAnswer(
        text=str(message.get("reasoning_content") or "") + str(text),
        output_tokens=int(value["usage"]["completion_tokens"]),
        finish=str(choice.get("finish_reason") or "unknown"),
    )


async def _post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with session.post(url, json=body) as response:
        raw = await response.text(errors="replace")
        try:
            return response.status, json.loads(raw)
        except ValueError:
            if response.status == 200:
                raise ValueError(f"the answer is not JSON: {raw[:300]}") from None
            return response.status, raw[:300]


def native_answer(value: dict[str, Any]) -> GreedyAnswer:
    """An answer of SGLang's ``/generate``. Raises ``LookupError``, ``TypeError`` or ``ValueError`` for another form."""
    meta = value["meta_info"]
    reason = meta.get("finish_reason") or {}
    finish = str(reason.get("type", "unknown") if isinstance(reason, dict) else reason)
    if finish == "abort":
        raise ValueError(f"the server aborted the request: {json.dumps(reason)[:300]}")
    chosen = meta.get("output_token_logprobs") or ()
    length = meta.get("spec_accept_length")
    return GreedyAnswer(
        text=str(value.get("text") or ""),
        output_tokens=int(meta["completion_tokens"]),
        finish=finish,
        tokens=tuple(int(entry[1]) for entry in chosen) or tuple(int(t) for t in value.get("output_ids") or ()),
        logprobs=tuple(_number(entry[0]) for entry in chosen),
        alternatives=tuple(
            tuple((int(entry[1]), _number(entry[0])) for entry in position or ())
            for position in meta.get("output_top_logprobs") or ()
        ),
        acceptance_length=float(length) if length else None,
    )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
