"""A server whose true figures are known, run as a process of its own.

``python known_server.py PORT`` (0 for any; the port is printed): 20 ms to the first chunk, then 5 ms a token, three
tokens a chunk, each sent at its absolute deadline, so that a late timer does not delay the next. It speaks SGLang's
/generate and the OpenAI endpoints, tells at /lateness by how many milliseconds the machine made it miss its deadlines,
and does wrong on demand, where the text holds a word in capitals. Raw asyncio, so that it is faster than what it tests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

FIRST_S = 0.020
TOKEN_S = 0.005
CHUNK_TOKENS = 3
PIECE = "alpha beta gamma "
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"
LATE_MS: list[float] = []

# What goes wrong at the second chunk: bytes, and whether the answer goes on, ends, or the connection breaks.
WRONGS: dict[str, tuple[bytes, str]] = {
    "BADJSON": (b'data: {"text": "broken\n\n', "on"),
    "ODDJSON": (b'data: {"meta_info": 7}\n\n', "on"),
    "LISTJSON": (b"data: [1]\n\n", "on"),
    "ERROREVENT": (b'data: {"error": {"message": "out of memory"}}\n\n', "on"),
    "ABORT": (
        b'data: {"text": "x", "meta_info": {"completion_tokens": 3, "finish_reason": {"type": "abort"}}}\n\n',
        "end",
    ),
    "TRUNCATE": (b"", "end"),
    "CUT": (b"", "break"),
}


def native(done: int, asked: int, prompt_tokens: int) -> dict:
    meta = {
        "finish_reason": {"type": "length", "length": asked} if done >= asked else None,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": done,
        "cached_tokens": 0,
        "spec_accept_length": done / max((done - 1) // CHUNK_TOKENS, 1),
        "spec_accept_rate": 2 / 3,
    }
    return {"text": PIECE * -(-done // CHUNK_TOKENS), "meta_info": meta}


def openai(path: str, done: int, asked: int) -> dict:
    finish = "length" if done >= asked else None
    if path.endswith("chat/completions"):
        key = "reasoning_content" if done <= CHUNK_TOKENS else "content"
        return {"choices": [{"index": 0, "delta": {key: PIECE}, "finish_reason": finish}]}
    return {"choices": [{"index": 0, "text": PIECE, "finish_reason": finish}]}


def event(value: dict) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


async def respond(path: str, body: dict, began: float, writer: asyncio.StreamWriter) -> bool:
    """One answer; whether the connection is still good."""
    text = json.dumps(body)
    if path == "/lateness":
        told = json.dumps(sum(LATE_MS) / max(len(LATE_MS), 1)).encode()
        LATE_MS.clear()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(told) + told)
        return True
    if "STATUS500" in text:
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops")
        return True
    if "HANGUP" in text:
        return False
    writer.write(HEAD)
    if "SILENT" in text:
        await asyncio.sleep(3600)
    return await stream(path, body, text, began, writer)


async def stream(path: str, body: dict, text: str, began: float, writer: asyncio.StreamWriter) -> bool:
    asked = body["sampling_params"]["max_new_tokens"] if path == "/generate" else body["max_tokens"]
    prompt_tokens = max(len(body.get("text") or body.get("prompt") or text) // 4, 1)
    wrong = next((WRONGS[word] for word in WRONGS if word in text), None)
    usage: dict = {}
    for done in (*range(CHUNK_TOKENS, asked, CHUNK_TOKENS), asked):
        deadline = began + FIRST_S + max(done - CHUNK_TOKENS, 0) * TOKEN_S
        await asyncio.sleep(max(deadline - time.perf_counter(), 0))
        LATE_MS.append((time.perf_counter() - deadline) * 1e3)
        if wrong and done == 2 * CHUNK_TOKENS:
            writer.write(chunk(wrong[0]) if wrong[0] else b"")
            if wrong[1] != "on":
                writer.write(LAST if wrong[1] == "end" else b"")
                return wrong[1] == "end"
        value = native(done, asked, prompt_tokens) if path == "/generate" else openai(path, done, asked)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": done}
        if path != "/generate" and "NORUNNING" not in text:
            value["usage"] = usage
        await send(event(value), writer, dribble="DRIBBLE" in text)
    if path != "/generate" and "NOUSAGE" not in text:
        writer.write(chunk(event({"choices": [], "usage": usage})))
    writer.write(chunk(b"data: [DONE]\n\n") + LAST)
    return True


async def send(data: bytes, writer: asyncio.StreamWriter, dribble: bool) -> None:
    size = 40 if dribble else len(data)
    for place in range(0, len(data), size):
        writer.write(chunk(data[place : place + size]))
        await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        good = True
        while good:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            began = time.perf_counter()
            lengths = [line for line in head.lower().split("\r\n") if line.startswith("content-length")]
            if not lengths:
                # A GET: sglang.bench_serving asks for /v1/models before it starts.
                told = b'{"data": [{"id": "known"}]}'
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(told) + told)
                await writer.drain()
                continue
            body = json.loads(await reader.readexactly(int(lengths[0].split(":")[1])))
            good = await respond(head.split(" ", 2)[1], body, began, writer)
            await writer.drain()
    writer.close()


async def main(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1])))
