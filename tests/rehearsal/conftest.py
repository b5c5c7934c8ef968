"""Starting rehearsal engines in tests: as a user does, as a process, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

BIG = "/models/Qwen3.5-397B-A17B-NVFP4"


class Started:
    """A rehearsal engine under test."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, port: int) -> None:
        self.process, self.log_path, self.port = process, log, port
        self.url = f"http://127.0.0.1:{port}"

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def ask(self, path: str, body: Any = None, timeout: float = 20.0) -> tuple[int, str]:
        """(status, body) of a request."""
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def json(self, path: str, body: Any = None) -> Any:
        status, text = self.ask(path, body)
        assert status == 200, text
        return json.loads(text)

    def events(self, path: str, body: Any) -> list[tuple[float, Any]]:
        """(seconds since asking, event) of a streamed answer, without the closing one."""
        began, found = time.monotonic(), []
        data = json.dumps({**body, "stream": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data), timeout=30) as answer:
            for raw in answer:
                if raw.startswith(b"data: {"):
                    found.append((time.monotonic() - began, json.loads(raw[6:])))
                elif raw.startswith(b"data: [DONE]"):
                    return found
        raise AssertionError("the stream has no end")

    def until(self, condition: Callable[[], bool], seconds: float = 15.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.log[-2000:]
            time.sleep(0.02)

    def until_ready(self) -> Started:
        def ready() -> bool:
            assert self.process.poll() is None, self.log[-2000:]
            with contextlib.suppress(OSError):
                return self.ask("/ready")[0] == 200
            return False

        self.until(ready)
        return self

    def exit_status(self, seconds: float = 15.0) -> int:
        return self.process.wait(seconds)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Start a rehearsal: ``start("--tp-size", "2", fault="...", REHEARSAL_SPEED="0")``; its leftovers are killed."""
    begun: list[Started] = []

    def begin(*flags: str, model: str = "/models/tiny", fault: str = "", **environment: str) -> Started:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("REHEARSAL_", "NCCL_"))}
        environ |= {"REHEARSAL_SPEED": "0", "REHEARSAL_SEED": "7", "REHEARSAL_FAULT": fault}
        environ |= {"REHEARSAL_LEFTOVER_S": "20", "REHEARSAL_TEST": str(port), **environment}
        log = tmp_path / f"engine-{len(begun)}.log"
        command = [sys.executable, "-m", "rehearsal.launch_server", "--model-path", model, "--port", str(port)]
        with log.open("wb") as stderr:
            process = subprocess.Popen([*command, *flags], env=environ, stderr=stderr, start_new_session=True)
        begun.append(Started(process, log, port))
        return begun[-1]

    yield begin
    for engine in begun:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("REHEARSAL_TEST") == str(engine.port):
                    process.send_signal(signal.SIGKILL)
        engine.process.wait(10)
