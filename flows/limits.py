"""Service-level limits: a configuration that misses one cannot win, however fast it is."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.results import Measurement
from engine.phase import Phase
from search_spaces.sections import Limits


def missed(limits: Limits, measurements: Sequence[Measurement], phases: Sequence[Phase]) -> str | None:
    """The first limit that is missed, in a sentence; ``None`` where all are kept."""
    for measured in measurements:
        for name, limit, figures in (
            ("TTFT", limits.ttft_ms, measured.ttft_ms),
            ("ITL", limits.itl_ms, measured.itl_ms),
        ):
            if limit is not None and figures is not None and figures.mean > limit:
                return f"mean {name} {figures.mean:,.1f} ms at {measured.level.name}, the limit is {limit:,.1f} ms"
    if limits.memory_left_gb is not None:
        left = [phase.memory_left_gb for phase in phases if phase.memory_left_gb is not None]
        if left and min(left) < limits.memory_left_gb:
            return f"{min(left):.2f} GB of GPU memory left, the limit is {limits.memory_left_gb:.2f} GB"
    return None
