"""Leaving at once when a person or the system stops us: what we own is closed by then, Prefect's threads are not."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, NoReturn


def stop_on_sigterm() -> None:
    """Let SIGTERM end a command as Ctrl-C does, so that every ``with`` block is left in order."""

    def interrupt(number: int, frame: Any) -> NoReturn:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def leave_now(status: int) -> NoReturn:
    """End Prefect's temporary server and this process.

    Prefect's event threads go on trying to reach the server that has ended with the flow, for half a minute and more.
    """
    from prefect.server.api.server import SubprocessASGIServer  # noqa: PLC0415 - only where Prefect is loaded anyway

    for server in list(getattr(SubprocessASGIServer, "_instances", {}).values()):
        server.stop()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
