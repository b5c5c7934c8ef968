"""Bytes over PCIe and NVLink while a load runs: an observer for ``benchmark.load.measure``.

NVML counts what each GPU sent and received over PCIe, in 32 bits: a sampler process reads often enough that no wrap is
missed, and every measurement says how near it came. What passes over the link while nobody works (the readings
themselves are most of it) is measured beforehand, at the same rate of reading, and subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from interconnect.counter_sampler import COUNTERS, Window
from interconnect.counters import NARROW, wrap_s
from interconnect.sampling import CounterSampling, NoCounters


@dataclass(frozen=True)
class Traffic:
    """Bytes of one window, mean over the GPUs, idle traffic taken off; ``nvlink_bytes`` ``None`` where not counted."""

    sent_bytes: float
    received_bytes: float
    nvlink_bytes: float | None
    seconds: float


def mean_traffic(window: Window, idle_sent_per_s: float = 0.0, idle_received_per_s: float = 0.0) -> Traffic:
    """A window's bytes per GPU beyond idle traffic; never below zero."""
    gpus = window.gpus.values()
    nvlink = [gpu.nvlink_sent for gpu in gpus if gpu.nvlink_sent is not None]
    return Traffic(
        max(0.0, fmean(gpu.sent for gpu in gpus) - idle_sent_per_s * window.seconds),
        max(0.0, fmean(gpu.received for gpu in gpus) - idle_received_per_s * window.seconds),
        fmean(nvlink) if nvlink else None,
        window.seconds,
    )


def sampling_note(window: Window, idle_sent_per_s: float | None = None) -> str:
    """How the window was read and whether that is proof against a wrap, in one sentence."""
    idle = (
        "idle traffic not subtracted"
        if idle_sent_per_s is None
        else f"{idle_sent_per_s / 1e6:.1f} MB/s idle subtracted"
    )
    if window.source != COUNTERS:
        return f"PCIe bytes: {window.source} over {window.reads} readings, {idle} (this driver has no byte counters)"
    largest = max(gpu.largest_step for gpu in window.gpus.values())
    allowed = min(wrap_s(gpu.link_bytes_per_s) for gpu in window.gpus.values())
    text = (
        f"PCIe bytes: {window.source}, {window.reads} readings, largest step {largest / 1e6:.1f} MB of "
        f"{NARROW / 1e6:.0f}, longest gap {window.longest_gap_s * 1e3:.0f} ms of the {allowed * 1e3:.0f} in which a "
        f"full link wraps, {idle}"
    )
    if window.longest_gap_s >= allowed:
        text += "; the gap could hide a wrap, so the bytes are a lower bound"
    return text


class PcieObserver:
    """Counts the bytes that the measured requests moved; mean over these GPUs (NVML's indices).

    One observer serves all levels of a launch: call :meth:`measure_idle` before the engine starts and :meth:`close`
    after it (or use it as a context manager). Without GPUs or NVML it observes nothing and says so in a note.
    """

    def __init__(self, gpus: Sequence[int], idle_bytes_per_s: tuple[float, float] | None = None) -> None:
        self._sampling = CounterSampling(gpus)
        self._missing: str | None = None
        self.idle_bytes_per_s = idle_bytes_per_s
        self.window: Window | None = None

    def __enter__(self) -> PcieObserver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def measure_idle(self, seconds: float = 1.0) -> tuple[float, float] | None:
        """Bytes a second and GPU that are (sent, received) while nobody works; ``None`` where nothing is counted.

        Takes ``seconds`` and, the first time, the start of the sampler process (about half a second).
        """

        try:
            self._sampling.start()
            time.sleep(seconds)
            idle = mean_traffic(self._sampling.stop())
        except NoCounters as error:
            self._missing = str(error)
            return None
        self.idle_bytes_per_s = (idle.sent_bytes / idle.seconds, idle.received_bytes / idle.seconds)
        return self.idle_bytes_per_s

    def before_start(self) -> None:
        """The first measured request is about to start."""
        self.window = None
        if self._missing is not None:
            return
        try:
            self._sampling.start()
        except NoCounters as error:
            self._missing = str(error)

    def answered(self, prompt: Any, text: str, sample: Any) -> None:
        """Nothing to do at each answer."""

    def after_finish(self) -> Mapping[str, Any]:
        """``pcie_bytes`` (sent, per GPU), ``nvlink_bytes`` where counted, and ``notes`` on how they were read."""
        if self._missing is None:
            try:
                self.window = self._sampling.stop()
            except NoCounters as error:
                self._missing = str(error)
        if self.window is None:
            return {"notes": (self._missing,)}
        sent, received = self.idle_bytes_per_s or (0.0, 0.0)
        traffic = mean_traffic(self.window, sent, received)
        found: dict[str, Any] = {"pcie_bytes": traffic.sent_bytes, "notes": (self._note(traffic),)}
        if traffic.nvlink_bytes is not None:
            found["nvlink_bytes"] = traffic.nvlink_bytes
        return found

    def _note(self, traffic: Traffic) -> str:
        assert self.window is not None
        note = sampling_note(self.window, self.idle_bytes_per_s[0] if self.idle_bytes_per_s else None)
        return f"{note}; received {traffic.received_bytes / 1e6:.1f} MB per GPU"

    def close(self) -> None:
        """End the sampler process; done twice without harm."""
        self._sampling.close()
