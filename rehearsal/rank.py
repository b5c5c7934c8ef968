"""A rank: a real process that goes through the stages of a start, and then waits until its parent ends."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import time
from typing import NamedTuple, NoReturn

from rehearsal.faults import Fault, traceback
from rehearsal.log_lines import capture_bar, raw, say, shards_bar, stamp
from rehearsal.memory import Memory
from rehearsal.settings import Settings
from rehearsal.startup import Bar, Stage

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

# What a parent's order makes a serving rank die of.
SERVING_DEATHS = {
    b"x": "RuntimeError: CUDA error: an illegal memory access was encountered",
    b"n": "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
}


class Place(NamedTuple):
    """Which rank a process is: its number in the world, and the prefix of its log lines (`` TP3``)."""

    number: int
    prefix: str


class Rank:
    """One rank's life. Owns one end of a socket pair; its parent's end closing is the parent's death."""

    def __init__(self, place: Place, stages: tuple[Stage, ...], memory: Memory, settings: Settings,
                 faults: tuple[Fault, ...], channel: socket.socket) -> None:  # fmt: skip
        self.place, self.stages, self.memory, self.settings = place, stages, memory, settings
        self.faults = tuple(fault for fault in faults if fault.rank == place.number and fault.stage)
        self.stubborn = any(fault.kind == "ignore-sigterm" for fault in faults)
        self.channel = channel

    def live(self) -> NoReturn:
        """Start, report after each stage, then wait for orders; never returns."""
        die_with_parent(f"rehearsal_TP{self.place.number}")
        if self.stubborn:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for stage in self.stages:
            self._play(stage)
            self.channel.sendall(b".")
            self._order()
        while True:
            text = SERVING_DEATHS.get(self._order())
            if text:
                self._die(Fault("crash", "warm-up", text=text))

    def _order(self) -> bytes:
        order = self.channel.recv(1)
        if not order:
            os._exit(0)
        return order

    def _pause(self, seconds: float) -> None:
        """Sleep, but notice the end of the parent."""
        if seconds > 0 and select.select([self.channel], [], [], seconds)[0] and not self.channel.recv(1):
            os._exit(0)

    def _play(self, stage: Stage) -> None:
        begun = time.monotonic()
        mine = [fault for fault in self.faults if fault.stage == stage.name]
        self._write(stage.begin)
        skew = 1 + 0.006 * (self.place.number * 7 % 5)
        seconds = stage.seconds * skew * self.settings.speed
        for fault in mine:
            if fault.kind == "slow":
                seconds *= fault.number
        ending = next((fault for fault in mine if fault.kind != "slow"), None)
        self._work(stage.bar, seconds * (0.5 if ending else 1.0), stop_half_way=ending is not None)
        if ending is not None:
            self._end(ending)
        elapsed = f"elapsed={time.monotonic() - begun:.2f}"
        self._write(tuple(text.replace("elapsed=@", elapsed) for text in stage.end))

    def _write(self, texts: tuple[str, ...]) -> None:
        if texts:
            head = stamp(self.place.prefix)
            raw("".join(f"{head} {text}\n" for text in texts))

    def _work(self, bar: Bar | None, seconds: float, stop_half_way: bool) -> None:
        if bar is None or bar.total == 0:
            self._pause(seconds)
            return
        begun = time.monotonic()
        last = bar.total // 2 if stop_half_way else bar.total
        drawn = ""
        for done in range(last + 1):
            elapsed = time.monotonic() - begun
            if bar.sizes:
                size = bar.sizes[-1 - min(done, bar.total - 1)]
                drawn += capture_bar(size, bar.avail - bar.used * done / bar.total, done, bar.total, elapsed)
            else:
                drawn += shards_bar(done, bar.total, elapsed)
            if done == last and not stop_half_way:
                drawn += "\n"
            if seconds > 0 or done == last:
                raw(drawn)
                drawn = ""
            if done < last:
                # The first graph takes a third of the whole, as kernels are compiled then.
                share = 1 / 3 if bar.sizes and done == 0 and last > 1 else 1 / last
                rest = (2 / 3) / (last - 1) if bar.sizes and done > 0 and last > 1 else share
                self._pause(seconds * rest)

    def _end(self, fault: Fault) -> NoReturn:
        if fault.kind == "hang":
            while True:
                self._pause(3600.0)
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        self._die(fault)

    def _die(self, fault: Fault) -> NoReturn:
        text = traceback(fault, self.memory, self.place.number)
        say(self.settings.version, "exception", self.place.prefix, traceback=text)
        os.kill(os.getppid(), signal.SIGQUIT)
        while True:
            self._pause(3600.0)


def die_with_parent(name: str) -> None:
    """Be killed by the kernel when the parent dies, and carry a name that ``ps`` and ``top`` show."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)
