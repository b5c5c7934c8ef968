"""The counter sampler as its owner sees it: started when first needed, asked for windows, gone when we are."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from interconnect.counter_sampler import Window

# A full Gen5 x16 link wraps a 32-bit counter in 68 ms, Gen6 in 35 ms: room for a few readings that come late.
PERIOD_S = 0.008
_START_LIMIT_S = 20.0
_ANSWER_LIMIT_S = 10.0
_ROOT = Path(__file__).resolve().parent.parent


class NoCounters(Exception):
    """Traffic cannot be read here; the text is one sentence."""


class CounterSampling:
    """Owns one sampler process; a context manager. Its standard input is a pipe that ends with us, whatever ends us."""

    def __init__(self, gpus: Sequence[int], period_s: float = PERIOD_S) -> None:
        self._gpus = list(gpus)
        self._period_s = period_s
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._lock = threading.Lock()

    def __enter__(self) -> CounterSampling:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Start the process if it does not run.

        Raises:
            NoCounters: there is no GPU to read, no NVML, or the process does not answer.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if not self._gpus:
            raise NoCounters("this launch uses no GPU, so no PCIe traffic is counted")
        paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._unread = b""
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "interconnect.counter_sampler",
                ",".join(map(str, self._gpus)),
                str(self._period_s),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # a Ctrl-C is for us; the end of the pipe tells it
        )
        answer = self._line(_START_LIMIT_S)
        if answer != "ready":
            self.close()
            reason = answer.removeprefix("unavailable ") or "the process that reads them ended"
            raise NoCounters(f"NVML cannot be read here ({reason}), so no PCIe traffic is counted")

    def start(self) -> None:
        """Begin a window. Raises NoCounters."""
        self.open()
        self._ask("start")

    def stop(self) -> Window:
        """End the window. Raises NoCounters."""
        return Window.from_line(self._ask("stop"))

    def close(self) -> None:
        """End the process; done twice without harm."""
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            process.wait(2.0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, command: str) -> str:
        process = self._process
        with self._lock:
            if process is None or process.stdin is None:
                raise NoCounters("the process that reads the PCIe counters was not started")
            try:
                process.stdin.write(f"{command}\n".encode())
                process.stdin.flush()
            except OSError:
                self.close()
                raise NoCounters("the process that reads the PCIe counters has ended") from None
            answer = self._line(_ANSWER_LIMIT_S)
        if not answer:
            self.close()
            raise NoCounters("the process that reads the PCIe counters does not answer")
        return answer

    def _line(self, limit_s: float) -> str:
        """The next line of the process, empty when it ends or is late."""
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                return ""
            piece = os.read(descriptor, 65536)
            if not piece:
                return ""
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()
