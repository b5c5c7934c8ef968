"""When is an engine ready? When its log says so and HTTP confirms it, or when HTTP alone says so twice.

While it loads, its port refuses; while it warms up, ``/health`` answers 503; then 200. ``/model_info`` answers 200
during the warm-up already and is no sign. A log that never says "ready" (a logging configuration of the user's own)
does not keep an engine from being ready. A server on the port that is not of the engine's tree is no sign either.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
from collections.abc import Iterable
from typing import Any

from engine.ports import holder_among, listening_sockets

# SGLang answers after the first token of a probe, at the latest after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT).
HEALTH_TIMEOUT_S = 25.0
LOOK_S = 1.0
CONFIRMATIONS_WITHOUT_LOG = 2


def is_ready(log_says_so: bool, healthy_answers: int, ours: bool | None) -> bool:
    """The decision. ``healthy_answers`` in a row; ``ours`` (the listener is) is ``None`` where unknown."""
    if ours is False or healthy_answers < 1:
        return False
    return log_says_so or healthy_answers >= CONFIRMATIONS_WITHOUT_LOG


def get(port: int, path: str, timeout_s: float) -> tuple[int, bytes] | None:
    """Status and body of one GET on loopback (no proxy is asked), ``None`` if there is no whole answer in time."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def server_info(port: int, timeout_s: float = 10.0) -> dict[str, Any]:
    """What the engine says that it really runs; empty where it does not say (older engines: ``/get_server_info``)."""
    for path in ("/server_info", "/get_server_info"):
        answer = get(port, path, timeout_s)
        if answer is None or answer[0] != 200:
            continue
        try:
            told = json.loads(answer[1])
        except ValueError:
            continue
        if isinstance(told, dict):
            return told
    return {}


class HealthProbe:
    """Asks ``/health`` in a thread of its own, every second and whenever it is nudged, until the block ends."""

    def __init__(self, port: int, look_s: float = LOOK_S) -> None:
        self.port = port
        self.look_s = look_s
        self.healthy_answers = 0
        self.last_status: int | None = None
        self.answered = threading.Event()
        self._nudged = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="health-probe", daemon=True)

    def _run(self) -> None:
        while not self._ended:
            answer = get(self.port, "/health", HEALTH_TIMEOUT_S)
            self.last_status = answer[0] if answer else None
            self.healthy_answers = self.healthy_answers + 1 if self.last_status == 200 else 0
            self.answered.set()
            self._nudged.wait(self.look_s)
            self._nudged.clear()

    def nudge(self) -> None:
        """Ask now, or again as soon as the question in flight is answered."""
        self._nudged.set()

    def __enter__(self) -> HealthProbe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._nudged.set()


def listener_is_ours(port: int, tree: Iterable[int]) -> bool | None:
    """Whether what listens on the port is of the tree; ``None`` if nothing listens or we may not look."""
    sockets = listening_sockets(port)
    if not sockets:
        return None
    pids = list(tree)
    if holder_among(sockets, pids) is not None:
        return True
    return None if any(not os.access(f"/proc/{pid}/fd", os.R_OK) for pid in pids) else False
