"""The owner's side of a keeper: one object owns one keeper, and through it one process tree."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine import keeper
from engine.process_tree import (
    Process,
    carriers,
    descendants,
    kill_until_none,
    process_table,
    read_process,
    signal_exactly,
)


class KeptTree:
    """A process tree that cannot outlive this process.

    ``control`` is the writing end of the pipe that the keeper reads: nobody else may hold it, since its closing by the
    kernel, however this process ends, is what ends the tree.
    """

    def __init__(self) -> None:
        self.launch = uuid.uuid4().hex
        self.pid: int | None = None
        self.keeper_pid: int | None = None
        self.exit_status: int | None = None
        self.refused: str | None = None
        self.gone = False
        self.killed = 0
        self.keeper_killed = False
        self._keeper: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._lock = threading.Lock()

    def start(
        self, argv: Sequence[str], environment: Mapping[str, str], *, log_path: Path, locks: Sequence[int] = ()
    ) -> None:
        """Spawn keeper and tree; returns when the tree's first process runs, or was ``refused``."""
        me = read_process(os.getpid())
        assert me is not None
        specification: keeper.Specification = {
            "argv": list(argv),
            "environment": dict(environment),
            "log": str(log_path.absolute()),
            "folder": os.getcwd(),
            "locks": list(locks),
            "owner": [me.pid, me.start],
        }
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__, self.launch],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            pass_fds=tuple(locks),
            start_new_session=True,
        )
        assert self._keeper.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.write(json.dumps(specification).encode() + b"\n")
        while self.pid is None and self.refused is None and not self.gone:
            self.listen(1.0)

    @property
    def guard_pid(self) -> int | None:
        """The keeper's parent, the process that we spawned."""
        return self._keeper.pid if self._keeper else None

    def members(self) -> list[Process]:
        """The processes of the tree now, parents before children; keeper and guard are not of it."""
        table = process_table()
        spared = {self.guard_pid, self.keeper_pid}
        below = {process.pid: process for root in spared if root for process in descendants(root, table)}
        return [process for pid, process in below.items() if pid not in spared and process.state != "Z"]

    @property
    def running(self) -> bool:
        """Whether the tree's first process has started and has not ended, as far as the keeper has told."""
        return self.pid is not None and self.exit_status is None and not self.gone

    def listen(self, timeout_s: float = 0.0) -> None:
        """Take in what the keeper tells, waiting at most so long for it to tell something."""
        with self._lock:
            if self._keeper is None or self.gone:
                return
            assert self._keeper.stdout is not None
            if not select.select([self._keeper.stdout], [], [], timeout_s)[0]:
                return
            piece = os.read(self._keeper.stdout.fileno(), 65536)
            if not piece:
                self._finish_alone()
                return
            *lines, self._unread = (self._unread + piece).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, told: dict[str, object]) -> None:
        match told["event"]:
            case "started":
                self.pid, self.keeper_pid = int(str(told["pid"])), int(str(told["keeper"]))
            case "refused":
                self.refused, self.gone = str(told["reason"]), True
            case "exited":
                self.exit_status = int(str(told["status"]))
            case "keeper killed":
                self.keeper_killed = True
            case "gone":
                self.gone = True
                self.killed = int(str(told["killed"]))

    def _finish_alone(self) -> None:
        """Keeper and guard are both dead: what they left is ended from here, by its identity."""
        self.keeper_killed = True
        self.killed, left = kill_until_none(self.carriers, limit_s=30.0)
        self.gone = not left

    def carriers(self, table: dict[int, Process]) -> list[Process]:
        """The processes in the table whose environment names this launch."""
        return carriers(self.launch, table)

    def _wake_keepers(self) -> None:
        """Keepers that somebody stopped (SIGSTOP) go on."""
        for pid in (self.guard_pid, self.keeper_pid):
            if pid and (process := read_process(pid)) and process.state == "T":
                signal_exactly(process, signal.SIGCONT)

    def stop(self, grace_s: float, patience_s: float = 60.0) -> bool:
        """SIGTERM, a grace, SIGKILL; whether everything was gone within ``grace_s + patience_s``."""
        if self._keeper is None:
            return True
        deadline = time.monotonic() + grace_s + patience_s
        if not self.gone:
            with contextlib.suppress(OSError, ValueError):
                assert self._keeper.stdin is not None
                self._keeper.stdin.write(json.dumps({"stop": grace_s}).encode() + b"\n")
        while not self.gone and time.monotonic() < deadline:
            self.listen(0.5)
            if not self.gone:
                self._wake_keepers()
        if self.gone:
            # The locks are the keeper's and its guard's; they are free when both have ended.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(5.0)
            for pipe in (self._keeper.stdin, self._keeper.stdout):
                if pipe is not None:
                    pipe.close()
        return self.gone
