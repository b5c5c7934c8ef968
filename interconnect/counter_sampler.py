"""The process that reads NVML's traffic counters: ``python -m interconnect.counter_sampler 0,1 0.008``.

A process of its own, so that reading a hundred times a second takes nothing from the thread that applies the load.
Commands on standard input, answers on standard output, a line each:

    ready                               (on its own, once NVML is open)
    start  ->  started
    stop   ->  one line of JSON, see :class:`Window`
    end of standard input: it ends

Standard library and pynvml only.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from interconnect.counters import Counter, link_bytes_per_s

COUNTERS = "NVML's cumulative byte counters"
THROUGHPUT = "nvmlDeviceGetPcieThroughput, integrated"
_ALL_LINKS = 0xFFFFFFFF
_KIB = 1024


@dataclass
class GpuTraffic:
    """Bytes of one GPU in one window. ``nvlink_sent`` is ``None`` where there are no such counters."""

    sent: int = 0
    received: int = 0
    largest_step: int = 0
    link_bytes_per_s: float = 0.0
    nvlink_sent: int | None = None


@dataclass
class Window:
    """What was read between ``start`` and ``stop``.

    Attributes:
        source: which of NVML's two ways gave the figures (:data:`COUNTERS` or :data:`THROUGHPUT`).
        longest_gap_s: longest time between two readings of one GPU's counters.
        cpu_s: processor time that this process used meanwhile.
    """

    source: str
    seconds: float = 0.0
    reads: int = 0
    longest_gap_s: float = 0.0
    cpu_s: float = 0.0
    gpus: dict[int, GpuTraffic] = field(default_factory=dict)

    def as_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Window:
        """The window of such a line."""
        values = json.loads(line)
        values["gpus"] = {int(index): GpuTraffic(**gpu) for index, gpu in values["gpus"].items()}
        return cls(**values)


def _value(field_value: Any, nvml: Any) -> int | None:
    if field_value.nvmlReturn != 0:
        return None
    value = field_value.value
    if field_value.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
        return int(value.uiVal)
    return int(value.ullVal)


class _Device:
    """One GPU's counters."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
        self._fields = [nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES]
        self.counts = self._pcie() is not None
        self.link = link_bytes_per_s(99, 16)
        with contextlib.suppress(nvml.NVMLError):
            self.link = link_bytes_per_s(
                nvml.nvmlDeviceGetMaxPcieLinkGeneration(self._handle), nvml.nvmlDeviceGetMaxPcieLinkWidth(self._handle)
            )

    def _pcie(self) -> tuple[int, int] | None:
        try:
            sent, received = (
                _value(one, self._nvml) for one in self._nvml.nvmlDeviceGetFieldValues(self._handle, self._fields)
            )
        except (self._nvml.NVMLError, AttributeError):
            return None
        return None if sent is None or received is None else (sent, received)

    def _nvlink(self) -> int | None:
        """Bytes sent over all NVLinks since the driver was loaded; 64 bits, so two readings a window are enough."""
        field_id = (self._nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, _ALL_LINKS)
        try:
            kib = _value(self._nvml.nvmlDeviceGetFieldValues(self._handle, [field_id])[0], self._nvml)
        except (self._nvml.NVMLError, AttributeError):
            return None
        return None if kib is None else kib * _KIB

    def begin(self, now: float) -> None:
        """Forget what was counted and read for the first time."""
        self.sent, self.received = Counter(), Counter()
        self.rates = [0.0, 0.0]
        self.read_at = now
        self.longest_gap_s = 0.0
        self.nvlink_before = self._nvlink()
        self.read()
        self.longest_gap_s = 0.0

    def read(self) -> None:
        """One reading."""
        now = time.monotonic()
        if self.counts:
            values = self._pcie()
            if values is None:
                return  # the gap grows, and is told
            self.sent.take(values[0])
            self.received.take(values[1])
        else:
            kinds = (self._nvml.NVML_PCIE_UTIL_TX_BYTES, self._nvml.NVML_PCIE_UTIL_RX_BYTES)
            try:
                rates = [self._nvml.nvmlDeviceGetPcieThroughput(self._handle, kind) * _KIB for kind in kinds]
            except self._nvml.NVMLError:
                return
            # NVML averages over the 20 ms before it answers; what it says holds until the next reading.
            for place, rate in enumerate(rates):
                self.rates[place] += rate * (now - self.read_at)
        self.longest_gap_s = max(self.longest_gap_s, now - self.read_at)
        self.read_at = now

    def finish(self) -> GpuTraffic:
        """Read for the last time and sum up."""
        self.read()
        after = self._nvlink()
        nvlink = None if after is None or self.nvlink_before is None else max(0, after - self.nvlink_before)
        if self.counts:
            step = max(self.sent.largest_step, self.received.largest_step)
            return GpuTraffic(self.sent.total, self.received.total, step, self.link, nvlink)
        return GpuTraffic(int(self.rates[0]), int(self.rates[1]), 0, self.link, nvlink)


class Sampler:
    """All chosen GPUs, one window at a time."""

    def __init__(self, nvml: Any, indices: list[int]) -> None:
        self._devices = {index: _Device(nvml, index) for index in indices}
        self._source = COUNTERS if all(device.counts for device in self._devices.values()) else THROUGHPUT
        for device in self._devices.values():
            device.counts = self._source == COUNTERS
        self.sampling = False

    def start(self) -> None:
        """Begin a window."""
        self._reads = 0
        self._cpu = time.process_time()
        self._began = time.monotonic()
        for device in self._devices.values():
            device.begin(self._began)
        self.sampling = True

    def read(self) -> None:
        """Read every GPU once."""
        self._reads += 1
        for device in self._devices.values():
            device.read()

    def stop(self) -> Window:
        """End the window."""
        self.sampling = False
        traffic = {index: device.finish() for index, device in self._devices.items()}
        return Window(
            self._source,
            time.monotonic() - self._began,
            self._reads,
            max(device.longest_gap_s for device in self._devices.values()),
            time.process_time() - self._cpu,
            traffic,
        )


def _serve(sampler: Sampler, period_s: float) -> None:
    due = time.monotonic()
    while True:
        wait = max(0.0, due - time.monotonic()) if sampler.sampling else None
        if select.select([0], [], [], wait)[0]:
            commands = os.read(0, 4096).decode().split()
            if not commands:
                return
            for command in commands:
                if command == "start":
                    sampler.start()
                    due = time.monotonic() + period_s
                    print("started", flush=True)
                elif command == "stop":
                    print(sampler.stop().as_line(), flush=True)
        elif sampler.sampling:
            sampler.read()
            due = max(due + period_s, time.monotonic())


def main() -> int:
    """Serve until standard input ends."""
    import pynvml  # noqa: PLC0415 - the caller reads of its absence as one line

    try:
        pynvml.nvmlInit()
        sampler = Sampler(pynvml, [int(index) for index in sys.argv[1].split(",")])
    except pynvml.NVMLError as error:
        print(f"unavailable {error}", flush=True)
        return 1
    # An engine may use every core: a late reading may miss a wrap.
    with contextlib.suppress(OSError):
        os.nice(-10)
    print("ready", flush=True)
    _serve(sampler, float(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
