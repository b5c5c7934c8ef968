"""The server: bound when the ranks are through, warmed up, and ended as SGLang ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from typing import Any

from rehearsal import endpoints, model
from rehearsal.decoding import Decoding, Flight
from rehearsal.endings import leave_behind
from rehearsal.http import Handler, Request, Response, as_json, converse
from rehearsal.log_lines import say
from rehearsal.ranks import Ranks
from rehearsal.startup import pace

DRAIN_S = 2.0


class Server:
    """One listening engine. Lives in one event loop; ``run`` returns the exit status."""

    def __init__(self, crew: Ranks, command: str, began: float) -> None:
        self.crew, self.began = crew, began
        self.settings, self.args = crew.settings, crew.args
        seed = os.urandom(8).hex() if self.settings.seed is None else str(self.settings.seed)
        times = model.times(self.args, dict(os.environ), self.settings, seed)
        decoding = Decoding(times, self.args, crew.memory, self.settings, crew.places[0].prefix)
        self.faults = {fault.kind: fault for fault in crew.faults}
        self.engine = endpoints.Engine(decoding, {"launch_command": command}, self.settings.version)
        self.engine.garbage = "garbage" in self.faults
        self.engine.drift = times.compute[0] % 1 * 0.004
        self.ended = asyncio.Event()
        self.open: set[asyncio.Task[None]] = set()
        self.routes: dict[str, Handler] = {
            **dict.fromkeys(("/health", "/health_generate", "/ready", "/ping"), self._health),
            **dict.fromkeys(("/server_info", "/get_server_info"), self._server_info),
            **dict.fromkeys(("/model_info", "/get_model_info"), self._model_info),
            **dict.fromkeys(("/v1/completions", "/v1/chat/completions"), self._openai),
            "/generate": self._generate,
            "/v1/models": self._models,
            "/flush_cache": self._flush_cache,
            "/abort_request": self._abort,
        }
        if self.args["enable_metrics"]:
            self.routes["/metrics"] = self._metrics

    def say(self, name: str, **fields: Any) -> None:
        """Write a line of the parent's."""
        say(self.settings.version, name, **fields)

    def log(self, request: Request, status: int) -> None:
        """Write the access line of a request, as uvicorn does."""
        reason = {200: "200 OK", 503: "503 Service Unavailable", 400: "400 Bad Request", 404: "404 Not Found"}
        self.say(
            "access", peer=request.peer, method=request.method, path=request.path, status=reason.get(status, status)
        )

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        engine = self.engine
        deaf = self.faults.get("deaf")
        if deaf and engine.asked >= deaf.number:
            await asyncio.Event().wait()
        answer = self.routes.get(request.path)
        return as_json({"detail": "Not Found"}, 404) if answer is None else await answer(request)

    async def _health(self, request: Request) -> Response:
        """``/health`` lets one token be made, so a probe takes a while; ``/ready`` and ``/ping`` do not."""
        well = self.engine.up and not self.engine.stopping
        if well and request.path.startswith("/health"):
            await asyncio.sleep(min(1.0, self.settings.speed))
        return Response(200 if well else 503)

    async def _generate(self, request: Request) -> Response:
        self._perhaps_die()
        return await endpoints.generate(self.engine, request)

    async def _openai(self, request: Request) -> Response:
        self._perhaps_die()
        return await endpoints.openai(self.engine, request)

    async def _server_info(self, _: Request) -> Response:
        return as_json(self.engine.info())

    async def _model_info(self, _: Request) -> Response:
        names = ("model_path", "tokenizer_path", "served_model_name", "weight_version")
        about = {name: self.args.get(name) for name in names}
        return as_json({"rehearsal": True, **about, "is_generation": True, "preferred_sampling_params": None})

    async def _models(self, _: Request) -> Response:
        card = {
            "id": self.args["served_model_name"],
            "object": "model",
            "created": int(time.time()),
            "owned_by": "rehearsal",
            "rehearsal": True,
            "max_model_len": self.args["context_length"],
        }
        return as_json({"object": "list", "data": [card]})

    async def _flush_cache(self, _: Request) -> Response:
        text = "text/plain; charset=utf-8"
        if self.engine.decoding.running or self.engine.decoding.waiting:
            return Response(400, b"Cache not flushed because there are pending requests.\n", text)
        self.engine.seen.clear()
        return Response(200, b"Cache flushed.\n", text)

    async def _abort(self, request: Request) -> Response:
        return endpoints.abort(self.engine, request)

    async def _metrics(self, _: Request) -> Response:
        return endpoints.metrics(self.engine)

    def _perhaps_die(self) -> None:
        if "nan" in self.faults:
            self.crew.order(b"n")
        death = self.faults.get("die-serving")
        if death and self.engine.asked >= death.number:
            self.crew.order(b"x")

    async def run(self, listener: socket.socket) -> int:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        if "ignore-sigterm" not in self.faults:
            loop.add_signal_handler(signal.SIGTERM, self.ended.set)
        loop.add_signal_handler(signal.SIGINT, self.ended.set)
        for number, channel in enumerate(self.crew.channels):
            channel.setblocking(False)
            loop.add_reader(channel, self._rank_spoke, number)
        server = await asyncio.start_server(self._connection, sock=listener, backlog=4096)
        self.say("uvicorn 3")
        self.say("uvicorn 4", host=self.args["host"], port=self.args["port"])
        warm_up = loop.create_task(self._warm_up())
        await self.ended.wait()
        warm_up.cancel()
        await self._stop(server)
        return 0

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            await converse(reader, writer, self.handle, self.log)
        finally:
            self.open.discard(task)

    def _rank_spoke(self, number: int) -> None:
        if not self.crew.channels[number].recv(1):
            self.crew.died_serving(number)

    async def _warm_up(self) -> None:
        """One request of the server's own, as long as warm-ups take; then it is ready."""
        if not self.args["skip_server_warmup"]:
            await asyncio.sleep(pace(self.args, self.crew.memory)["warm-up"] * self.settings.speed)
            own = f"{self.args['host']}:{os.getpid() % 20000 + 40000}"
            self.say("access", peer=own, method="GET", path="/model_info", status="200 OK")
            flight = Flight(4, 0, self.engine.take_off("warm-up", {"max_new_tokens": 1, "temperature": 0}, 8).answer)
            self.engine.decoding.log_prefill(flight, 1.0)
            self.engine.asked -= 1
            self.say("access", peer=own, method="POST", path="/generate", status="200 OK")
            self.say("access", peer=own, method="POST", path="/freeze_gc", status="200 OK")
        self.engine.up = True
        self.say("ready")

    async def _stop(self, server: asyncio.AbstractServer) -> None:
        self.engine.stopping = True
        self.say("sigterm")
        decoding = self.engine.decoding
        patience = time.monotonic() + DRAIN_S
        while (decoding.running or decoding.waiting) and time.monotonic() < patience:
            await asyncio.sleep(0.02)
        self.say("drained", requests=decoding.running + decoding.waiting)
        server.close()
        for task in self.open:
            task.cancel()
        self.say("kill tree", pid=os.getpid(), own=False)
        loop = asyncio.get_running_loop()
        for channel in self.crew.channels:
            loop.remove_reader(channel)
        self.crew.kill()
        for number in range(1, 5):
            self.say(f"goodbye {number}", pid=os.getpid())


def serve(crew: Ranks, command: str, began: float) -> int:
    """Bind and serve; the exit status is 1 when the port is taken, which shows only now, as with SGLang."""
    paces = pace(crew.args, crew.memory)
    speed, elapsed = crew.settings.speed, time.monotonic() - began
    speculative = bool(crew.args["speculative_algorithm"])
    target = paces["target graphs"] * speed
    say(crew.settings.version, "timings", weights=paces["weights"] * speed, pools=paces["mamba and KV cache"] * speed,
        scheduler=elapsed, prefill=paces["prefill graphs"] * speed, decode=0.0 if speculative else target,
        verify=target if speculative else 0.0, draft=paces["draft graphs"] * speed,
        extend=paces["draft-extend graphs"] * speed, total=elapsed)  # fmt: skip
    say(crew.settings.version, "uvicorn 1", pid=os.getpid())
    say(crew.settings.version, "uvicorn 2")
    host, port = crew.args["host"], crew.args["port"]
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(4096)
    except OSError:
        say(crew.settings.version, "port taken", host=host, port=port)
        crew.kill()
        return 1
    if any(fault.kind == "keep-port" for fault in crew.faults):
        leave_behind(crew.settings.leftover_s, keep=listener.fileno())
    return asyncio.run(_serve(crew, command, began, listener))


async def _serve(crew: Ranks, command: str, began: float, listener: socket.socket) -> int:
    return await Server(crew, command, began).run(listener)
