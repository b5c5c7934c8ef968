"""What the probe found for each candidate, and which candidates are promising."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.failure import Failure
from interconnect.round_trips import Collective
from interconnect.traffic_model import AllReduceCurve, Point


@dataclass(frozen=True)
class SizeResult:
    """All-reduces of one message size.

    Attributes:
        p50_us, p99_us: of one all-reduce; on GPUs each value is the mean over one replay of a CUDA graph.
        bus_gb_s: bytes that cross a GPU's link a second, 2 (n-1)/n of the message per all-reduce.
        sent_bytes: PCIe bytes that each GPU sent per all-reduce, idle traffic taken off; ``None`` where not counted.
    """

    message_bytes: int
    p50_us: float
    p99_us: float
    bus_gb_s: float
    calls: int
    sent_bytes: float | None = None


@dataclass(frozen=True)
class ProbeResult:
    """One candidate: its environment variables, and figures by message size or why there are none."""

    candidate: Mapping[str, str]
    ranks: int
    sizes: tuple[SizeResult, ...] = ()
    failure: Failure | None = None
    seconds: float = 0.0
    left_out: tuple[int, ...] = field(default=())

    @property
    def label(self) -> str:
        """``NCCL_PROTO=LL NCCL_ALGO=Ring``, or ``default``."""
        return " ".join(f"{name}={value}" for name, value in sorted(self.candidate.items())) or "default"

    def curve(self) -> AllReduceCurve:
        """For the traffic model. Raises ValueError for a candidate that failed."""
        return AllReduceCurve(
            self.ranks, tuple(Point(one.message_bytes, one.p50_us / 1e6, one.sent_bytes) for one in self.sizes)
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as written in JSON."""
        return {**asdict(self), "candidate": dict(self.candidate), "label": self.label}


@dataclass(frozen=True)
class Ranked:
    """A candidate with its place: ``cost`` is its weighted mean time relative to the best at each size (1 is best)."""

    result: ProbeResult
    cost: float


def weights_of(steps: Sequence[Sequence[Collective]]) -> dict[int, float]:
    """How much each message size matters: the all-reduces of each step by size, each step (load) counting equally."""
    weights: dict[int, float] = {}
    for step in steps:
        sizes: Counter[int] = Counter()
        for one in step:
            if one.kind == "all-reduce":
                sizes[one.message_bytes] += one.count
        total = sum(sizes.values())
        for size, number in sizes.items():
            weights[size] = weights.get(size, 0.0) + number / total / len(steps)
    return weights


def rank(results: Sequence[ProbeResult], weights: Mapping[int, float]) -> list[Ranked]:
    """Candidates from best to worst; those that failed come last, with infinite cost.

    The cost is a weighted geometric mean of ratios, as a study's score is, so that the slow large messages do not
    drown the small ones. A size that a candidate leaves to NCCL is judged by its curve between the others.
    """
    good = [result for result in results if result.failure is None and result.sizes]
    total = sum(weights.values())
    if not good or total <= 0:
        return [Ranked(result, math.inf) for result in results]
    best = {size: min(result.curve().seconds(size) for result in good) for size in weights}
    ranked = [
        Ranked(
            result,
            math.exp(
                sum(weight * math.log(result.curve().seconds(size) / best[size]) for size, weight in weights.items())
                / total
            ),
        )
        for result in good
    ]
    failed = [Ranked(result, math.inf) for result in results if result not in good]
    return sorted(ranked, key=lambda one: one.cost) + failed


def first_third(ranked: Sequence[Ranked]) -> tuple[Ranked, ...]:
    """The candidates worth launching with: a third of those that worked, one at least, and ties of the last."""
    good = [one for one in ranked if math.isfinite(one.cost)]
    if not good:
        return ()
    last = good[max(0, math.ceil(len(good) / 3) - 1)].cost
    return tuple(one for one in good if one.cost <= last * 1.0001)


def order(ranked: Sequence[Ranked]) -> tuple[dict[str, str], ...]:
    """The candidates' variables from best to worst, without those that failed."""
    return tuple(dict(one.result.candidate) for one in ranked if math.isfinite(one.cost))
