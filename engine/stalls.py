"""Is a silent engine stalled, or is it working? Pure decisions on samples of its vital signs.

A phase is stalled when it has outlived its history (or a generous default) and, for a while, there was no output, no
CPU time, no I/O and no change of GPU memory. A compiler at work (kernels are built by ``nvcc`` for ten minutes and
more, without a word) or weights that trickle from a slow disk are work. A collective that waits for a dead peer may
burn a core for ever: where a busy core is the only sign of life, patience is longer but ends too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

# Below these a process only breathes: watchdog threads, heartbeats, a log rotation.
BUSY_CORE_SHARE = 0.10
MOVING_BYTES_PER_S = 64 * 1024
GPU_MEMORY_STEP_GB = 0.016

# Names under which compilers of kernels run.
COMPILERS = frozenset({"nvcc", "cicc", "ptxas", "fatbinary", "cudafe++", "ninja", "cc1plus", "ld", "nvlink", "clang"})

WEAK_SIGNS = frozenset({"CPU time", "disk wait"})


@dataclass(frozen=True)
class VitalSigns:
    """One look at the tree.

    Attributes:
        at_s: monotonic seconds.
        log_bytes: bytes that the log has had so far.
        cpu_s: CPU seconds used so far, by pid.
        io_bytes: bytes read and written so far by all processes.
        gpu_memory_gb: in use, by GPU.
        compilers: names of compilers that run in the tree.
        waits_for_disk: a process is in uninterruptible sleep.
    """

    at_s: float
    log_bytes: int = 0
    cpu_s: Mapping[int, float] = field(default_factory=dict)
    io_bytes: int = 0
    gpu_memory_gb: Mapping[int, float] = field(default_factory=dict)
    compilers: tuple[str, ...] = ()
    waits_for_disk: bool = False


@dataclass(frozen=True)
class Patience:
    """How long a start may look dead.

    Attributes:
        phase_s: what a phase without history may take (on eight GPUs 397B weights were seen to take 10 minutes).
        quiet_s: seconds without any sign of life.
        busy_factor: so many times longer where a busy core or a wait for the disk is the only sign.
        look_s: seconds between two looks.
    """

    phase_s: float = 900.0
    quiet_s: float = 120.0
    busy_factor: float = 4.0
    look_s: float = 5.0


def signs_of_life(before: VitalSigns, now: VitalSigns) -> frozenset[str]:
    """What moved between two looks."""
    seconds = max(now.at_s - before.at_s, 1e-6)
    signs = set()
    if now.log_bytes != before.log_bytes:
        signs.add("output")
    shares = ((cpu - before.cpu_s.get(pid, 0.0)) / seconds for pid, cpu in now.cpu_s.items())
    if max(shares, default=0.0) >= BUSY_CORE_SHARE:
        signs.add("CPU time")
    if (now.io_bytes - before.io_bytes) / seconds >= MOVING_BYTES_PER_S:
        signs.add("I/O")
    if any(
        abs(used - before.gpu_memory_gb.get(gpu, used)) >= GPU_MEMORY_STEP_GB for gpu, used in now.gpu_memory_gb.items()
    ):
        signs.add("GPU memory")
    if now.compilers:
        signs.add("compilers")
    if now.waits_for_disk:
        signs.add("disk wait")
    return frozenset(signs)


def phase_limit_s(median_s: float, most_s: float, patience: Patience) -> float:
    """Seconds that a phase with a history may take before silence counts: well beyond what it ever took."""
    return max(3 * median_s, 2 * most_s, patience.quiet_s)


class StallWatch:
    """Remembers when each kind of sign was last seen; says when the start is stalled."""

    def __init__(self, patience: Patience) -> None:
        self.patience = patience
        self._last: VitalSigns | None = None
        self._last_strong_s = -math.inf
        self._last_any_s = -math.inf

    def stalled(self, now: VitalSigns, phase_elapsed_s: float, limit_s: float) -> str | None:
        """One clause that says why this is a stall; ``None`` while it is none. To be asked at every look."""
        if self._last is None:
            self._last, self._last_strong_s, self._last_any_s = now, now.at_s, now.at_s
            return None
        signs = signs_of_life(self._last, now)
        self._last = now
        if signs:
            self._last_any_s = now.at_s
        if signs - WEAK_SIGNS:
            self._last_strong_s = now.at_s
        quiet_s, nearly_quiet_s = now.at_s - self._last_any_s, now.at_s - self._last_strong_s
        if phase_elapsed_s > limit_s and quiet_s >= self.patience.quiet_s:
            return f"no output, CPU time, I/O or change of GPU memory for {quiet_s:.0f} s"
        factor = self.patience.busy_factor
        if phase_elapsed_s > factor * limit_s and nearly_quiet_s >= factor * self.patience.quiet_s:
            return f"nothing but {' and '.join(sorted(signs or WEAK_SIGNS))} for {nearly_quiet_s:.0f} s"
        return None
