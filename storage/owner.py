"""Which process owns an unfinished record, told in a way that neither a reused pid nor a jump of the clock can fool."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class Owner:
    """One process of one boot of one host. `incarnation` is the boot and the process's start within it."""

    host: str
    pid: int
    incarnation: str

    def is_dead(self) -> bool | None:
        """Whether the process has ended; ``None`` when it lives on another host and cannot be told from here."""
        if self.host != this_host():
            return None
        return _incarnation(self.pid) != self.incarnation


def this_host() -> str:
    """The name of this host, as records carry it."""
    return platform.node() or "localhost"


def this_process() -> Owner:
    """The owner that this process is."""
    return Owner(this_host(), os.getpid(), _incarnation(os.getpid()) or "unknown")


def _incarnation(pid: int) -> str | None:
    """Boot and start ticks of a living process, ``None`` of a dead one (a zombie counts as dead)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        try:
            return None if Path("/proc/self/stat").exists() else f"{psutil.Process(pid).create_time():.2f}"
        except psutil.Error:
            return None
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{started}"
