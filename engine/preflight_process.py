"""The process that asks the installed SGLang: started, spoken to a line at a time, and never outliving us.

It runs :mod:`engine.preflight_child` with the engine's interpreter. A thread of ours starts it and stays with it: the
kernel ends the process when that thread ends (whatever ended us), and the end of its standard input tells it the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

CHILD = Path(__file__).with_name("preflight_child.py")


class HelperLost(Exception):
    """The helper could not be started, has ended, or does not answer; the text is a sentence."""


class PreflightProcess:
    """One helper process; a context manager."""

    def __init__(self, python: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = [*python, str(CHILD), "--parent", str(os.getpid())]
        self._environment = dict(environment)
        self._lines: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._begun = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lost: str | None = None
        self._requests = 0
        self._begin = time.monotonic()
        self._thread = threading.Thread(target=self._stay, name="quietlane-preflight", daemon=True)

    def __enter__(self) -> PreflightProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the helper; returns before it is ready."""
        self._begin = time.monotonic()
        self._thread.start()
        self._begun.wait()

    @property
    def pid(self) -> int | None:
        """The helper's process id, once it has one."""
        return self._process.pid if self._process else None

    def ready(self, deadline: float) -> dict[str, Any]:
        """The first line of the helper: version and flags.

        Raises:
            HelperLost: it could not be started, cannot import SGLang, ended, or is late (``deadline`` is monotonic).
        """
        allowed = deadline - self._begin
        line = self._next(
            max(0.0, deadline - time.monotonic()), f"SGLang's argument code was not imported within {allowed:.1f} s"
        )
        if "failed" in line:
            raise HelperLost(f"SGLang cannot be asked: {line['failed']}")
        return line

    def ask(self, arguments: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
        """SGLang's decision on one configuration, as :mod:`engine.preflight_child` describes it.

        Raises:
            HelperLost: the helper ended, or did not answer even some seconds after ``timeout_s``.
        """
        self._requests += 1
        request = {
            "id": self._requests,
            "arguments": list(arguments),
            "environment": dict(environment),
            "timeout_s": timeout_s,
        }
        process = self._process
        if process is None or process.stdin is None or self._lost:
            raise HelperLost(self._lost or "the helper was not started")
        with contextlib.suppress(OSError):  # it has ended: the next line says why
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        # beyond the helper's own limit for the fork, it may be importing what forks need
        deadline = time.monotonic() + timeout_s + 30.0
        while True:
            left = max(0.0, deadline - time.monotonic())
            line = self._next(left, f"the helper that asks SGLang gave no answer for {timeout_s + 30:.0f} s")
            if line.get("id") == self._requests:
                return line

    def close(self) -> None:
        """End the helper, whatever it is doing; done twice without harm."""
        process = self._process
        if process is not None and process.stdin is not None:
            process.kill()  # it owns nothing that wants an orderly end
            process.wait()
            with contextlib.suppress(OSError):
                process.stdin.close()
        if self._thread.ident is not None:
            self._thread.join()
        self._errors.close()

    def _stay(self) -> None:
        """The thread: start the process, then hand over its lines until it ends."""
        try:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,  # an interrupt from the terminal is for us
            )
        except OSError as error:
            self._lost = f"{self._command[0]} cannot be started: {error.strerror}"
            self._lines.put(None)
            return
        finally:
            self._begun.set()
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                try:
                    self._lines.put(json.loads(line))
                except ValueError:  # not ours
                    continue
        status = self._process.wait()
        self._lost = self._lost or f"the helper that asks SGLang ended with exit status {status}{self._last_error()}"
        self._lines.put(None)

    def _next(self, timeout_s: float, too_late: str) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            self._lost = too_late
            raise HelperLost(too_late) from None
        if line is None:
            self._lines.put(None)  # for whoever asks next
            raise HelperLost(self._lost or "the helper that asks SGLang ended")
        return line

    def _last_error(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
            if lines:
                return f": {lines[-1].strip()[:300]}"
        return ""
