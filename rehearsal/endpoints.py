"""The endpoints, each as SGLang answers it; every answer says that it is a rehearsal."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from rehearsal.answers import answer, count_tokens, logprobs
from rehearsal.decoding import Decoding, Flight
from rehearsal.http import Request, Response, as_json

LABEL = "REHEARSAL"
EVENTS = "text/event-stream; charset=utf-8"


class Engine:
    """What the endpoints speak about: the batch, the arguments, and the state of the server."""

    def __init__(self, decoding: Decoding, about: dict[str, Any], version: str) -> None:
        self.decoding, self.about, self.version = decoding, about, version
        self.args = decoding.args
        self.up = False
        self.stopping = False
        self.garbage = False
        self.seen: set[int] = set()
        self.flights: dict[str, Flight] = {}
        self.asked = 0
        self.drift = 0.0

    def info(self) -> dict[str, Any]:
        """What /server_info says."""
        memory, decoding = self.decoding.memory, self.decoding
        state = {
            "last_gen_throughput": round(decoding.last_throughput, 2),
            "memory_usage": {
                "weight": round(memory.weights + memory.draft_weights, 2),
                "kvcache": round(memory.kv + memory.draft_kv + memory.ssm + memory.conv + memory.intermediate, 2),
                "token_capacity": memory.tokens,
                "graph": round(memory.target_graphs + memory.draft_graphs + memory.extend_graphs, 2),
            },
            "effective_max_running_requests_per_dp": min(
                self.args["max_running_requests"], memory.states or self.args["max_running_requests"]
            ),
        }
        if decoding.times.speculative:
            state["avg_spec_accept_length"] = round(decoding.acceptance_length, 4)
        return {
            **self.args,
            **self.about,
            "rehearsal": True,
            "status": "ready" if self.up else "starting",
            "max_total_num_tokens": memory.tokens,
            "internal_states": [state],
            "version": f"rehearsal-{self.version}",
        }

    def take_off(self, prompt: str | list[int], sampling: dict[str, Any], limit: int) -> Flight:
        """A new request: its answer is settled, its pace is not."""
        self.asked += 1
        count = count_tokens(prompt)
        key = hash(str(prompt))
        cached = count - 1 if key in self.seen and not self.args["disable_radix_cache"] else 0
        self.seen.add(key)
        return Flight(count, cached, answer(prompt, sampling, limit, self.garbage))

    def meta(self, name: str, flight: Flight, began: float) -> dict[str, Any]:
        """The ``meta_info`` of a request so far."""
        finished = flight.done >= len(flight.answer.tokens)
        reason = flight.answer.finish if finished else None
        if flight.cut:
            reason = {"type": "abort", "message": "Abort in rehearsal"}
        meta: dict[str, Any] = {
            "id": name,
            "rehearsal": f"{LABEL}: no model answered this",
            "finish_reason": reason,
            "prompt_tokens": flight.prompt_tokens,
            "weight_version": "default",
            "completion_tokens": flight.done,
            "cached_tokens": flight.cached,
            "e2e_latency": time.monotonic() - began,
        }
        times = self.decoding.times
        if times.speculative and flight.steps:
            drafts = flight.steps * max(1, times.draft_tokens - 1)
            meta["spec_accept_rate"] = flight.drafts_accepted / drafts
            meta["spec_accept_length"] = flight.done / flight.steps
            meta["spec_verify_ct"] = flight.steps
            meta["spec_accept_token_num"] = flight.drafts_accepted
            meta["spec_draft_token_num"] = drafts
        return meta


def _bad(text: str) -> Response:
    return as_json({"object": "error", "rehearsal": True, "message": text, "type": "BadRequestError", "code": 400}, 400)


def _event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


async def generate(engine: Engine, request: Request) -> Response:
    """SGLang's own: ``text`` or ``input_ids`` (one or a list), ``sampling_params``, ``stream``, ``return_logprob``."""
    try:
        asked = request.json()
    except ValueError:
        return _bad("The body is not JSON.")
    prompts = asked.get("text", asked.get("input_ids"))
    if prompts is None:
        return _bad("Either text, input_ids or input_embeds should be provided.")
    many = isinstance(prompts, list) and bool(prompts) and not isinstance(prompts[0], int)
    if asked.get("stream") and many:
        return _bad("The rehearsal streams one prompt at a time.")
    sampling = asked.get("sampling_params") or {}
    results = [_one(engine, request, prompt, sampling, asked) for prompt in (prompts if many else [prompts])]
    if asked.get("stream"):
        return Response(type=EVENTS, pieces=_events(results[0]))
    last = [item for item in await asyncio.gather(*[_last(result) for result in results]) if item]
    return as_json(last if many else (last[0] if last else {}))


async def _last(results: AsyncIterator[dict[str, Any]]) -> dict[str, Any] | None:
    last = None
    async for result in results:
        last = result
    return last


async def _events(results: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    async for value in results:
        yield _event(value)
    yield b"data: [DONE]\n\n"


async def _one(engine: Engine, request: Request, prompt: str | list[int], sampling: dict[str, Any],
               asked: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:  # fmt: skip
    began = time.monotonic()
    name = str(asked.get("rid") or f"rehearsal{engine.asked:08d}")
    flight = engine.take_off(prompt, sampling, 128)
    engine.flights[name] = flight
    incremental = bool(engine.args["incremental_streaming_output"]) and bool(asked.get("stream"))
    told = 0
    try:
        async for _ in engine.decoding.run(flight, request.gone, f"{prompt}|{name}"):
            whole = flight.answer.text(flight.done)
            start = told if incremental else 0
            value: dict[str, Any] = {
                "text": whole[len(flight.answer.text(told)) :] if incremental else whole,
                "output_ids": list(flight.answer.tokens[start : flight.done]),
                "meta_info": engine.meta(name, flight, began),
            }
            if asked.get("return_logprob"):
                found = logprobs(flight.answer.tokens[: flight.done], engine.drift)
                value["meta_info"]["output_token_logprobs"] = found
            told = flight.done
            if asked.get("stream") or flight.done >= len(flight.answer.tokens):
                yield value
        if flight.cut:
            yield {
                "text": flight.answer.text(flight.done),
                "output_ids": [],
                "meta_info": engine.meta(name, flight, began),
            }
    finally:
        engine.flights.pop(name, None)


def _chat_prompt(messages: list[dict[str, Any]]) -> str:
    parts = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
        parts.append(f"<|{message.get('role', 'user')}|>{content}")
    return "\n".join(parts) + "\n<|assistant|>"


async def openai(engine: Engine, request: Request) -> Response:
    """/v1/completions and /v1/chat/completions, streamed or whole."""
    try:
        asked = request.json()
    except ValueError:
        return _bad("The body is not JSON.")
    chat = request.path.endswith("chat/completions")
    source = asked.get("messages") if chat else asked.get("prompt")
    if not source:
        return _bad("messages must be given." if chat else "prompt must be given.")
    prompt: str | list[int] = _chat_prompt(source) if chat else source
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], str):
        prompt = "".join(str(part) for part in prompt)
    sampling = {
        "temperature": asked.get("temperature", 1.0),
        "max_new_tokens": asked.get("max_completion_tokens", asked.get("max_tokens", None if chat else 16)),
        "ignore_eos": asked.get("ignore_eos", False),
        "sampling_seed": asked.get("seed", 0),
        "stop": asked.get("stop"),
    }
    flight = engine.take_off(prompt, sampling, 4096)
    name = ("chatcmpl-" if chat else "cmpl-") + f"rehearsal{engine.asked:08d}"
    pieces = _openai_events(engine, request, flight, name, asked, chat)
    if asked.get("stream"):
        return Response(type=EVENTS, pieces=pieces)
    async for _ in pieces:
        pass
    text = flight.answer.text(flight.done)
    choice: dict[str, Any] = {"index": 0, "finish_reason": flight.answer.finish["type"], "logprobs": None}
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return as_json(_openai(engine, name, "chat.completion" if chat else "text_completion", asked, [choice], flight))


def _openai(engine: Engine, name: str, kind: str, asked: dict[str, Any], choices: list[dict[str, Any]],
            flight: Flight | None = None) -> dict[str, Any]:  # fmt: skip
    value: dict[str, Any] = {
        "id": name,
        "object": kind,
        "created": int(time.time()),
        "model": asked.get("model") or engine.args["served_model_name"],
        "system_fingerprint": LABEL,
        "choices": choices,
    }
    if flight is not None:
        value["usage"] = {
            "prompt_tokens": flight.prompt_tokens,
            "completion_tokens": flight.done,
            "total_tokens": flight.prompt_tokens + flight.done,
            "prompt_tokens_details": {"cached_tokens": flight.cached},
        }
    return value


async def _openai_events(engine: Engine, request: Request, flight: Flight, name: str, asked: dict[str, Any],
                         chat: bool) -> AsyncIterator[bytes]:  # fmt: skip
    kind = "chat.completion.chunk" if chat else "text_completion"
    told = ""
    engine.flights[name] = flight
    try:
        if chat:
            first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            yield _event(_openai(engine, name, kind, asked, [first]))
        async for _ in engine.decoding.run(flight, request.gone, f"{name}"):
            text = flight.answer.text(flight.done)
            ended = flight.answer.finish["type"] if flight.done >= len(flight.answer.tokens) else None
            choice: dict[str, Any] = {"index": 0, "finish_reason": ended}
            fresh = text[len(told) :]
            choice |= {"delta": {"content": fresh}} if chat else {"text": fresh}
            told = text
            yield _event(_openai(engine, name, kind, asked, [choice]))
        if (asked.get("stream_options") or {}).get("include_usage"):
            yield _event(_openai(engine, name, kind, asked, [], flight))
        yield b"data: [DONE]\n\n"
    finally:
        engine.flights.pop(name, None)


def abort(engine: Engine, request: Request) -> Response:
    """/abort_request: by ``rid``, or all with ``abort_all``."""
    try:
        asked = request.json()
    except ValueError:
        return _bad("The body is not JSON.")
    for name, flight in engine.flights.items():
        if asked.get("abort_all") or name == asked.get("rid"):
            flight.cut = True
    return Response()


def metrics(engine: Engine) -> Response:
    """/metrics, under the names that SGLang's have."""
    decoding, memory = engine.decoding, engine.decoding.memory
    model = engine.args["served_model_name"]
    gauges = {
        "gen_throughput": decoding.last_throughput,
        "num_running_reqs": decoding.running,
        "num_queue_reqs": decoding.waiting,
        "spec_accept_length": decoding.acceptance_length if decoding.times.speculative else 0.0,
        "token_usage": decoding.context / max(1, memory.tokens),
        "max_total_num_tokens": memory.tokens,
        "weight_memory_usage_gb": memory.weights,
        "kv_cache_memory_usage_gb": memory.kv,
    }
    counters = {
        "prompt_tokens_total": decoding.prompt_total,
        "generation_tokens_total": decoding.generated_total,
        "num_requests_total": decoding.requests_total,
        "time_to_first_token_seconds_sum": decoding.ttft_sum,
        "time_to_first_token_seconds_count": decoding.requests_total,
    }
    lines = ["# REHEARSAL: figures of a stand-in engine"]
    for kind, values in (("gauge", gauges), ("counter", counters)):
        for name, value in values.items():
            lines += [f"# TYPE sglang:{name} {kind}", f'sglang:{name}{{model_name="{model}",rehearsal="true"}} {value}']
    return Response(200, ("\n".join(lines) + "\n").encode(), "text/plain; version=0.0.4; charset=utf-8")
