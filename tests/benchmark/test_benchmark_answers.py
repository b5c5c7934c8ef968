"""Collecting greedy answers from an engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from benchmark.answers import collect, gate_prompts
from benchmark.judgement import judge
from benchmark.plan import Plan
from benchmark.prompts import Prompt


@contextmanager
def engine(answer: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that answers each body with ``answer(path, body)`` = (status, value); and the bodies that it got."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            bodies.append(body)
            status, value = answer(self.path, body)
            raw = value if isinstance(value, bytes) else json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()


def native(body: dict[str, Any], logprobs: bool = True) -> dict[str, Any]:
    text = f"an answer to {body['text'][:9]}"
    meta: dict[str, Any] = {"finish_reason": {"type": "length"}, "completion_tokens": 3, "prompt_tokens": 2}
    if logprobs:
        meta["output_token_logprobs"] = [[-0.1, token, None] for token in (1, 2, 3)]
        meta["output_top_logprobs"] = [[[-0.1, token, None], [-3.0, 99, None]] for token in (1, 2, 3)]
    return {"text": text, "output_ids": [1, 2, 3], "meta_info": meta}


def test_the_gates_prompts_are_answered_greedily_with_log_probabilities() -> None:
    with engine(lambda path, body: (200, native(body))) as (url, bodies):
        answers = collect(url)
    assert len(answers.answers) == len(gate_prompts()) == len(bodies)
    assert all(body["sampling_params"]["temperature"] == 0 for body in bodies)
    assert answers.answers[0].alternatives[2] == ((3, -0.1), (99, -3.0))
    assert judge(answers, answers) == []


def test_an_engine_that_refuses_log_probabilities_is_asked_without() -> None:
    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": "no logprobs here"}) if "return_logprob" in body else (200, native(body, False))

    with engine(answer) as (url, _):
        answers = collect(url, [Prompt("a"), Prompt("b")])
    assert [given.error for given in answers.answers] == [None, None]
    assert answers.answers[0].tokens == (1, 2, 3)
    assert answers.answers[0].logprobs == ()


@pytest.mark.parametrize(
    ("status", "value", "reason"),
    [
        (500, {"error": "device-side assert"}, "HTTP 500"),
        (200, b"<html>", "not JSON"),
        (200, {"text": "x"}, "meta_info"),
        (200, {"text": "x", "meta_info": {"finish_reason": {"type": "abort"}}}, "aborted"),
        (200, [], "list indices"),
    ],
)
def test_what_goes_wrong_becomes_the_answers_error(status: int, value: Any, reason: str) -> None:
    with engine(lambda path, body: (status, value)) as (url, _):
        answers = collect(url, [Prompt("a")])
    assert reason in str(answers.answers[0].error)
    assert judge(None, answers)[0].kind == "no answer"


def test_a_refused_connection_becomes_the_answers_error() -> None:
    assert collect("http://127.0.0.1:9", [Prompt("a")]).answers[0].error


def test_log_probabilities_that_are_no_numbers_are_kept_as_such() -> None:
    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        value = native(body)
        value["meta_info"]["output_token_logprobs"][1][0] = None
        return 200, json.dumps(value).replace("-3.0", "NaN").encode()

    with engine(answer) as (url, _):
        faults = judge(None, collect(url, [Prompt("a"), Prompt("b")]))
    assert [fault.kind for fault in faults] == ["not a number"]


def test_the_openai_endpoints_are_asked_too() -> None:
    def answer(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        message = {"message": {"reasoning_content": "Hm. ", "content": "Yes."}, "finish_reason": "stop"}
        choice = message if path.endswith("chat/completions") else {"text": "Yes.", "finish_reason": "length"}
        return 200, {"choices": [choice], "usage": {"completion_tokens": 4}}

    with engine(answer) as (url, bodies):
        chat = collect(url, [Prompt("a")], Plan(endpoint="/v1/chat/completions"))
        text = collect(url, [Prompt("a")], Plan(endpoint="/v1/completions"))
    assert (chat.answers[0].text, chat.answers[0].finish) == ("Hm. Yes.", "stop")
    assert (text.answers[0].text, text.answers[0].output_tokens) == ("Yes.", 4)
    assert bodies[0]["messages"] == [{"role": "user", "content": "a"}]


def test_what_check_raises_ends_the_questions() -> None:
    def check() -> None:
        raise RuntimeError("the engine died")

    with pytest.raises(RuntimeError, match="the engine died"):
        collect("http://127.0.0.1:9", [Prompt("a")], None, check)
