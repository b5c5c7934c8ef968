"""The parent's side of the ranks: starting them, waiting for them stage by stage, and what it does when one dies."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from rehearsal.faults import Fault
from rehearsal.log_lines import prefix, say, stamp
from rehearsal.memory import Memory
from rehearsal.rank import Place, Rank
from rehearsal.settings import Settings


def places(args: dict[str, Any]) -> list[Place]:
    """Each rank's place: data parallel replicas outermost, then pipeline, then tensor parallel, as SGLang counts them."""
    widths = {"DP": args["dp_size"], "PP": args["pp_size"], "TP": args["tp_size"], "EP": args["ep_size"]}
    found = []
    for replica in range(widths["DP"]):
        for pipe in range(widths["PP"]):
            for tensor in range(widths["TP"]):
                expert = tensor * widths["EP"] // widths["TP"]
                name = prefix(widths, {"DP": replica, "PP": pipe, "TP": tensor, "EP": expert})
                found.append(Place(len(found), name))
    return found


class Ranks:
    """All ranks of one engine. A context manager: leaving it kills those that still live."""

    def __init__(self, args: dict[str, Any], memory: Memory, settings: Settings, faults: tuple[Fault, ...]) -> None:
        self.args, self.memory, self.settings, self.faults = args, memory, settings, faults
        self.places = places(args)
        self.channels: list[socket.socket] = []
        self.pids: list[int] = []
        self.serving = False
        self.started_at = time.monotonic()

    def __enter__(self) -> Ranks:
        signal.signal(signal.SIGQUIT, self._child_failed)
        for place in self.places:
            ours, theirs = socket.socketpair()
            pid = os.fork()
            if pid == 0:
                self._become(place, theirs)
            theirs.close()
            self.channels.append(ours)
            self.pids.append(pid)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _become(self, place: Place, channel: socket.socket) -> NoReturn:
        try:
            for other in self.channels:
                other.close()
            for number in (signal.SIGQUIT, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.SIG_IGN)
            Rank(place, self.args, self.memory, self.settings, self.faults, channel).live()
        finally:
            os._exit(1)

    def start(self, meanwhile: Any = None) -> None:
        """Lead all ranks through the start, stage by stage: none goes on before all are through (collectives bind them).

        ``meanwhile`` is called once while they work. Ends the process as SGLang does when a rank dies.
        """
        if meanwhile is not None:
            meanwhile()
        poller = select.poll()
        for number, channel in enumerate(self.channels):
            poller.register(channel, select.POLLIN)
            channel.setblocking(True)
        by_descriptor = {channel.fileno(): number for number, channel in enumerate(self.channels)}
        stages = self._stage_count()
        for _ in range(stages):
            waiting = set(range(len(self.channels)))
            while waiting:
                for descriptor, _event in poller.poll():
                    number = by_descriptor[descriptor]
                    if not self._receive(number):
                        self._died_starting(number)
                    waiting.discard(number)
            for number, channel in enumerate(self.channels):
                try:
                    channel.sendall(b".")
                except OSError:
                    self._died_starting(number)
        self.serving = True

    def _receive(self, number: int) -> bytes:
        try:
            return self.channels[number].recv(1)
        except OSError:
            return b""

    def _stage_count(self) -> int:
        from rehearsal.startup import stages  # noqa: PLC0415 - the ranks load it; the parent only counts

        return sum(1 for _ in stages(self.args, self.memory, self.settings.version, True))

    def order(self, what: bytes) -> None:
        """Make the first rank die while serving: ``b"x"`` of an illegal access, ``b"n"`` of NaN."""
        self.channels[0].sendall(what)

    def exit_code(self, number: int) -> int:
        """The exit code of a rank that has closed its channel, as Python gives it (-9 for SIGKILL)."""
        _, status = os.waitpid(self.pids[number], 0)
        return os.waitstatus_to_exitcode(status)

    def _died_starting(self, number: int) -> NoReturn:
        code = self.exit_code(number)
        self.kill(but=number)
        text = (
            f"Rank {number} scheduler died during initialization (exit code: {code}). "
            "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. "
            "Run `dmesg -T | grep -i oom` to check."
        )
        from rehearsal.endings import parent_exception  # noqa: PLC0415 - on the way out only

        parent_exception("RuntimeError", text, "entrypoints/engine.py", 2031, "_wait_for_scheduler_ready")
        os._exit(1)

    def died_serving(self, number: int) -> None:
        """Say what SGLang's watchdog says of a rank that is gone while serving, and end everything."""
        code = self.exit_code(number)
        name = f"scheduler_{number}"
        say(self.settings.version, "subprocess", name=name, child=self.pids[number], code=code)
        os.kill(os.getpid(), signal.SIGQUIT)

    def _child_failed(self, *_: object) -> None:
        name = "sigquit serving" if self.serving else "sigquit starting"
        say(self.settings.version, name)
        say(self.settings.version, "kill tree", pid=os.getpid(), own=True)
        self.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    def kill(self, but: int = -1) -> None:
        """SIGKILL every rank and wait for it."""
        for number, pid in enumerate(self.pids):
            if number == but:
                continue
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            except (ProcessLookupError, ChildProcessError):
                continue
        self.pids = []


def head(place: Place) -> str:
    """The beginning of a line that is written for a rank."""
    return stamp(place.prefix)
