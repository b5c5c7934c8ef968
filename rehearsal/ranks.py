"""The parent's side of the ranks: starting them, waiting for them stage by stage, and what it does when one dies."""

from __future__ import annotations

import os
import select
import signal
import socket
from typing import Any, NoReturn

from rehearsal.endings import parent_exception
from rehearsal.faults import Fault
from rehearsal.log_lines import line, prefix, say
from rehearsal.memory import Memory
from rehearsal.rank import Place, Rank
from rehearsal.settings import Settings
from rehearsal.startup import stages


def places(args: dict[str, Any]) -> list[Place]:
    """Each rank's place: data parallel replicas outermost, then pipeline, then tensor parallel, as in SGLang."""
    widths = {"DP": args["dp_size"], "PP": args["pp_size"], "TP": args["tp_size"], "EP": args["ep_size"]}
    found: list[Place] = []
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
        # Planned before the ranks are forked, so that eight of them need not plan it eight times.
        self.first_stages = tuple(stages(args, memory, settings.version, first=True))
        self.other_stages = tuple(stages(args, memory, settings.version, first=False))
        self.channels: list[socket.socket] = []
        self.pids: list[int] = []
        self.serving = False

    def __enter__(self) -> Ranks:
        signal.signal(signal.SIGQUIT, self._child_failed)
        if any(fault.kind == "ignore-sigterm" for fault in self.faults):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
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
            own = self.other_stages if place.number else self.first_stages
            Rank(place, own, self.memory, self.settings, self.faults, channel).live()
        finally:
            os._exit(1)

    def start(self) -> None:
        """Lead all ranks through the start: none goes on to a stage before all are there (collectives bind them).

        Ends the process as SGLang does when a rank dies.
        """
        poller = select.poll()
        for channel in self.channels:
            poller.register(channel, select.POLLIN)
            channel.setblocking(True)
        by_descriptor = {channel.fileno(): number for number, channel in enumerate(self.channels)}
        for _ in self.first_stages:
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
        text = line(self.settings.version, "died", rank=number, code=code) or ""
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
