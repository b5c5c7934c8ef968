"""What readings of cumulative counters mean: bytes that passed, and whether a wrap could have hidden between two."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# NVML's PCIe byte counters are 32 bits wide (seen on an H200); those of NVLink are 64 bits wide.
NARROW = 2**32
WIDE = 2**64
# One way, in bytes a second and lane, by PCIe generation: the rate of the link less its encoding.
_LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}


def step(before: int, now: int) -> int:
    """Bytes between two readings less than one wrap apart; a counter of any width below 2**32 wraps there."""
    if now >= before:
        return now - before
    return now + (NARROW if before < NARROW else WIDE) - before


def unwrap(samples: Iterable[int]) -> int:
    """Bytes that passed from the first reading to the last, however often the counter wrapped in between.

    True as long as fewer than 2**32 bytes passed between any two neighbours.
    """
    counter = Counter()
    for sample in samples:
        counter.take(sample)
    return counter.total


@dataclass
class Counter:
    """One cumulative counter, read again and again; memory does not grow."""

    total: int = 0
    largest_step: int = 0
    last: int | None = None

    def take(self, reading: int) -> None:
        """The next reading."""
        if self.last is not None:
            passed = step(self.last, reading)
            self.total += passed
            self.largest_step = max(self.largest_step, passed)
        self.last = reading


def link_bytes_per_s(generation: int, width: int) -> float:
    """What a link can carry one way at most, in bytes a second; an unknown generation counts as the fastest."""
    return _LANE_BYTES_PER_S.get(generation, max(_LANE_BYTES_PER_S.values())) * max(width, 1)


def wrap_s(bytes_per_s: float) -> float:
    """Seconds in which a full link wraps a 32-bit counter: 0.068 for Gen5 x16."""
    return NARROW / bytes_per_s
