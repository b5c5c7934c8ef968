"""The known server as a process that ends with its block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def known_server() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """(its URL, its process)."""
    command = [sys.executable, str(Path(__file__).with_name("known_server.py")), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def lateness_ms(url: str) -> float:
    """By how much, in the mean, the server missed its own deadlines since it was last asked."""
    with urllib.request.urlopen(urllib.request.Request(url + "/lateness", b"{}"), timeout=10) as response:
        return float(json.load(response))


@contextmanager
def ahead_of_others(*pids: int) -> Iterator[None]:
    """This process and others scheduled before the rest of the machine, where that is allowed; a clock needs it."""
    before = {pid: (os.sched_getscheduler(pid), os.sched_getparam(pid)) for pid in (0, *pids)}
    with suppress(PermissionError):
        for pid in before:
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(10))
    try:
        yield
    finally:
        with suppress(PermissionError, ProcessLookupError):
            for pid, (policy, parameter) in before.items():
                os.sched_setscheduler(pid, policy, parameter)
