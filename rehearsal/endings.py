"""How the parent ends when it cannot go on: the traceback it prints, and the leftovers that a fault leaves behind."""

from __future__ import annotations

import os
import signal
import time

from rehearsal.log_lines import raw


def parent_exception(kind: str, text: str, file: str, line: int, function: str) -> None:
    """Print the traceback of an exception that left the parent, as Python would."""
    frames = (
        ("launch_server.py", 84, "<module>", "run_server(server_args)"),
        ("launch_server.py", 29, "run_server", "launch_server(server_args)"),
        (f"srt/{file}", line, function, "raise " + kind),
    )
    lines = ["Traceback (most recent call last):"]
    for where, number, name, code in frames:
        lines += [f'  File "/opt/rehearsal/sglang/{where}", line {number}, in {name}', f"    {code}"]
    raw("\n".join([*lines, f"{kind}: {text}" if text else kind]) + "\n")


def leave_behind(seconds: float, keep: int | None = None) -> int:
    """Fork a process in a session of its own that outlives us for at most ``seconds``; return its pid.

    It keeps the descriptor ``keep`` (a listening socket: the port stays taken) and nothing else.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        for entry in os.listdir("/proc/self/fd"):
            if int(entry) > 2 and int(entry) != keep:
                try:
                    os.close(int(entry))
                except OSError:
                    continue
        time.sleep(seconds)
    finally:
        os._exit(0)
