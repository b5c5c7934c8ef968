"""A server whose true figures are known, as a process of its own.

python known_server.py PORT: 20 ms to the first chunk, then 5 ms a token, three tokens a chunk, each sent at its absolute
deadline (a late timer does not delay the next). It speaks SGLang's /generate and the two OpenAI endpoints, and misbehaves on
demand where the text holds a word in capitals (see ``_misbehave``). Raw asyncio, stdlib only, so that it is faster than
what it tests.
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


def native(done: int, asked: int, prompt_tokens: int) -> dict:
    meta = {
        "id": "x",
        "finish_reason": {"type": "length", "length": asked} if done >= asked else None,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": done,
        "cached_tokens": 0,
        "spec_accept_length": 3.0,
        "spec_accept_rate": 2 / 3,
        "spec_verify_ct": max(done // 3, 1),
    }
    return {"text": PIECE * -(-done // CHUNK_TOKENS), "output_ids": [], "meta_info": meta}


def chat(done: int, asked: int, reasoning: bool) -> dict:
    key = "reasoning_content" if reasoning else "content"
    finish = "length" if done >= asked else None
    return {"choices": [{"index": 0, "delta": {key: PIECE}, "finish_reason": finish}]}


def completion(done: int, asked: int) -> dict:
    return {"choices": [{"index": 0, "text": PIECE, "finish_reason": "length" if done >= asked else None}]}


def event(value: dict) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def respond(path: str, body: dict, began: float, writer: asyncio.StreamWriter) -> bool:
    """One answer; whether the connection is still good."""
    is_native = path == "/generate"
    text = json.dumps(body)
    asked = body["sampling_params"]["max_new_tokens"] if is_native else body["max_tokens"]
    prompt_tokens = max(len(body.get("text") or body.get("prompt") or text) // 4, 1)
    running = bool((body.get("stream_options") or {}).get("continuous_usage_stats")) and "NORUNNING" not in text
    if "STATUS500" in text:
        writer.write(b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops")
        return True
    if "HANGUP" in text:
        return False
    writer.write(HEAD)
    if "SILENT" in text:
        await asyncio.sleep(3600)
    done = 0
    number = 0
    while done < asked:
        brought = min(CHUNK_TOKENS, asked - done)
        deadline = began + FIRST_S + max(done + brought - CHUNK_TOKENS, 0) * TOKEN_S
        await asyncio.sleep(max(deadline - time.perf_counter(), 0))
        done += brought
        number += 1
        if number == 2:
            if "BADJSON" in text:
                writer.write(chunk(b'data: {"text": "broken\n\n'))
                continue
            if "ODDJSON" in text:
                writer.write(chunk(b'data: {"meta_info": 7}\n\ndata: [1]\n\n'))
                continue
            if "ERROREVENT" in text:
                writer.write(chunk(event({"error": {"message": "out of memory"}})))
            if "TRUNCATE" in text:
                writer.write(b"0\r\n\r\n")
                return True
            if "CUT" in text:
                return False
        if is_native:
            value = native(done, asked, prompt_tokens)
        elif path.endswith("chat/completions"):
            value = chat(done, asked, number == 1)
        else:
            value = completion(done, asked)
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": done, "total_tokens": prompt_tokens + done}
        if running:
            value["usage"] = usage
        data = event(value)
        if "DRIBBLE" in text:
            for place in range(0, len(data), 40):
                writer.write(chunk(data[place : place + 40]))
                await writer.drain()
        else:
            writer.write(chunk(data))
    if not is_native and "NOUSAGE" not in text:
        writer.write(chunk(event({"choices": [], "usage": usage})))
    writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    return True


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            began = time.perf_counter()
            path = head.split(" ", 2)[1]
            length = next(
                int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length")
            )
            body = json.loads(await reader.readexactly(length))
            if not await respond(path, body, began, writer):
                break
            await writer.drain()
    writer.close()


async def main(port: int) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1])))
