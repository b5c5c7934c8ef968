"""A small HTTP/1.1 server on asyncio: keep-alive, bodies by length or in chunks, answers whole or streamed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Payload Too Large",
    503: "Service Unavailable",
}
LARGEST_BODY = 64 << 20


class Request(NamedTuple):
    """A request. ``gone()`` says whether its client has closed the connection."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    peer: str
    gone: Callable[[], bool]

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; raises ValueError."""
        found = json.loads(self.body or b"{}")
        if not isinstance(found, dict):
            raise ValueError("the body is no JSON object")
        return found


class Response(NamedTuple):
    """An answer: a whole body, or pieces as they come (then sent as server-sent events in chunks)."""

    status: int = 200
    body: bytes = b""
    type: str = "application/json"
    pieces: AsyncIterator[bytes] | None = None


def as_json(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(status, json.dumps(value).encode())


Handler = Callable[[Request], Awaitable[Response]]
Log = Callable[[Request, int], None]


class _BadRequest(Exception):
    pass


async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    if "chunked" in headers.get("transfer-encoding", ""):
        parts = []
        while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)
    length = headers.get("content-length", "0")
    if not length.isdigit() or int(length) > LARGEST_BODY:
        raise _BadRequest
    return await reader.readexactly(int(length)) if int(length) else b""


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Request, bool] | None:
    """(the next request of a connection, whether it may stay open), or None at its end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        return None
    first, *lines = head.split("\r\n")
    words = first.split(" ")
    if len(words) != 3:
        raise _BadRequest
    headers = {}
    for text in lines:
        name, _, value = text.partition(":")
        headers[name.strip().lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _body(reader, headers)
    path, _, query = words[1].partition("?")
    peer = "{}:{}".format(*(writer.get_extra_info("peername") or ("?", 0))[:2])
    keep = headers.get("connection", "").lower() != "close" and words[2] == "HTTP/1.1"

    def gone() -> bool:
        return reader.at_eof() or writer.is_closing()

    return Request(words[0], path, dict(parse_qsl(query)), body, peer, gone), keep


async def _answer(writer: asyncio.StreamWriter, response: Response, keep: bool) -> None:
    head = f"HTTP/1.1 {response.status} {REASONS.get(response.status, 'Other')}\r\nserver: rehearsal\r\n"
    head += f"content-type: {response.type}\r\n" + ("" if keep else "connection: close\r\n")
    if response.pieces is None:
        writer.write(f"{head}content-length: {len(response.body)}\r\n\r\n".encode() + response.body)
        await writer.drain()
        return
    writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    async for piece in response.pieces:
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handler, log: Log) -> None:
    """Serve one connection until its client or its last answer closes it."""
    try:
        keep = True
        while keep:
            found = await _read(reader, writer)
            if found is None:
                return
            request, keep = found
            response = await handle(request)
            log(request, response.status)
            await _answer(writer, response, keep)
    except _BadRequest:
        writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    except (ConnectionError, asyncio.IncompleteReadError, ValueError):
        return
    finally:
        writer.close()
