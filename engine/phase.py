"""A phase: one stretch of an engine's start on one rank."""

from __future__ import annotations

from dataclasses import dataclass

# In the order of a start. An engine skips those that it has no use for.
PHASES = (
    "imports",
    "distributed init",
    "weights",
    "draft weights",
    "mamba and KV cache",
    "target graphs",
    "draft graphs",
    "draft-extend graphs",
    "prefill graphs",
    "autotune",
    "warm-up",
    "ready",
)


@dataclass(frozen=True)
class Phase:
    """One phase of one rank (``TP0``, ``DP1 TP3``; ``main`` for the parent).

    Attributes:
        started_at: unix seconds, from the log's own time where it prints one, else when it was read.
        elapsed_s: seconds from begin to end as the engine says, else as the log's times say; ``None`` while unknown.
        memory_used_gb, memory_left_gb: GPU memory as the engine reports it, where it does.
        progress: 0 to 1 where a bar is printed.
        done: the phase has ended.
    """

    rank: str
    name: str
    started_at: float | None = None
    elapsed_s: float | None = None
    memory_used_gb: float | None = None
    memory_left_gb: float | None = None
    progress: float | None = None
    done: bool = False
