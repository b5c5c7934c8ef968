"""Taking the vital signs of a process tree: CPU time, I/O, compilers at work, memory of its GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from engine.gpus import memory_used_gb
from engine.process_tree import Process
from engine.stalls import COMPILERS, VitalSigns

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Read from the page cache or through mmap: only one of the two counters moves, so both are taken.
IO_COUNTERS = ("rchar", "wchar", "read_bytes", "write_bytes")


def _io_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/io") as file:
            counters = dict(line.split(": ") for line in file.read().splitlines())
        return sum(int(counters[name]) for name in IO_COUNTERS)
    except (OSError, ValueError, KeyError):
        return 0


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def take(processes: Sequence[Process], log_bytes: int, gpus: Sequence[int] = ()) -> VitalSigns:
    """One look at these processes and GPUs."""
    return VitalSigns(
        at_s=time.monotonic(),
        log_bytes=log_bytes,
        cpu_s={process.pid: process.cpu_ticks / TICKS_PER_S for process in processes},
        io_bytes=sum(_io_bytes(process.pid) for process in processes),
        gpu_memory_gb=memory_used_gb(gpus) if gpus else {},
        compilers=tuple(sorted({_name(process.pid) for process in processes} & COMPILERS)),
        waits_for_disk=any(process.state == "D" for process in processes),
    )
