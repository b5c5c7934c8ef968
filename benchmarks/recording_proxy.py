"""A relay before an engine that notes when the first byte of a load went in and the last came out.

``python recording_proxy.py TARGET_PORT`` prints two ports: the relay's, and one that answers any connection with the
seconds between the first request to /generate and the last byte of an answer since it was last asked. Two clients that
are measured one after the other on a busy machine meet different minutes; each can be held against this clock instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time


class Span:
    """The first and the last time since the last reading."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = 0.0

    def read(self) -> float:
        seconds = self.last - self.first if self.first is not None else 0.0
        self.first = None
        return seconds


async def main(target: int) -> None:
    span = Span()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loading = False

        async def upstream() -> None:
            nonlocal loading
            while data := await reader.read(1 << 16):
                if data.startswith((b"POST", b"GET")):
                    loading = data.startswith(b"POST /generate")
                if loading and span.first is None:
                    span.first = time.perf_counter()
                out.write(data)
                await out.drain()
            out.close()

        async def downstream() -> None:
            while data := await back.read(1 << 16):
                if loading:
                    span.last = time.perf_counter()
                writer.write(data)
                await writer.drain()
            writer.close()

        with contextlib.suppress(OSError):
            back, out = await asyncio.open_connection("127.0.0.1", target)
            await asyncio.gather(upstream(), downstream(), return_exceptions=True)

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{span.read():.6f}\n".encode())
        writer.close()

    relaying = await asyncio.start_server(relay, "127.0.0.1", 0)
    telling = await asyncio.start_server(tell, "127.0.0.1", 0)
    print(*(server.sockets[0].getsockname()[1] for server in (relaying, telling)), flush=True)
    await asyncio.gather(relaying.serve_forever(), telling.serve_forever())


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1])))
