"""The traffic model: communication time and bytes per output token, from probe, model and acceptance, and their floor.

Time: each collective takes what the probe measured for a message of its size. Bytes: what the probe's counters saw for
such a message (protocols add flags, and waiting on flags in host memory is traffic too), else a ring's bytes.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interconnect.model_shape import Layout, ModelShape, Speculation
from interconnect.round_trips import Collective, count, decoding_step, forward_pass, ring_bytes


@dataclass(frozen=True)
class Point:
    """One message size, measured: seconds of an all-reduce (median), bytes that each GPU sent over PCIe for it."""

    message_bytes: int
    seconds: float
    sent_bytes: float | None = None


@dataclass(frozen=True)
class AllReduceCurve:
    """All-reduces of ``ranks`` GPUs by message size. Between points by power law, beyond them in proportion or flat."""

    ranks: int
    points: tuple[Point, ...]

    def __post_init__(self) -> None:
        if not self.points:
            raise ValueError("a curve without points predicts nothing; probe at least one message size")
        object.__setattr__(self, "points", tuple(sorted(self.points, key=lambda point: point.message_bytes)))

    def seconds(self, message_bytes: float) -> float:
        """Of one all-reduce; a message smaller than all points takes as long as the smallest."""
        return self._at(message_bytes, lambda point: point.seconds, flat_below=True)

    def sent_bytes(self, message_bytes: float) -> float:
        """That one GPU sends over PCIe for one all-reduce."""
        if any(point.sent_bytes is None for point in self.points):
            return 2 * (self.ranks - 1) / self.ranks * message_bytes
        return self._at(message_bytes, lambda point: point.sent_bytes or 0.0, flat_below=False)

    def _at(self, size: float, of: Callable[[Point], float], flat_below: bool) -> float:
        sizes = [point.message_bytes for point in self.points]
        place = bisect.bisect_left(sizes, size)
        if place == 0:
            first = self.points[0]
            return of(first) if flat_below or size == sizes[0] else of(first) * size / first.message_bytes
        if place == len(sizes):
            return of(self.points[-1]) * size / sizes[-1]
        low, high = self.points[place - 1], self.points[place]
        part = math.log(size / low.message_bytes) / math.log(high.message_bytes / low.message_bytes)
        if of(low) <= 0 or of(high) <= 0:
            return of(low) + part * (of(high) - of(low))
        return float(of(low) ** (1 - part) * of(high) ** part)


def best_curve(curves: Sequence[AllReduceCurve]) -> AllReduceCurve:
    """The least time at each size over all candidates: what the links of this box allow, as far as was probed."""
    if not curves:
        raise ValueError("no candidate of the probe gave a curve; see its failures")
    sizes = sorted({point.message_bytes for curve in curves for point in curve.points})
    return AllReduceCurve(
        curves[0].ranks, tuple(Point(size, min(curve.seconds(size) for curve in curves)) for size in sizes)
    )


@dataclass(frozen=True)
class Prediction:
    """What communication costs at one load.

    Attributes:
        collectives_per_step, collectives_per_token: round trips; per token that one request gets.
        step_ms: communication in one decoding step, with the probed candidate.
        token_ms: the same per token that one request gets.
        floor_token_ms: with the least time of any candidate at each size; ``None`` without other candidates.
        sent_bytes_per_token: PCIe bytes that each GPU sends per output token of the whole engine, prompts included.
        ring_bytes_per_token: the least that a ring must send.
    """

    concurrency: int
    acceptance_length: float
    collectives_per_step: int
    collectives_per_token: float
    step_ms: float
    token_ms: float
    floor_token_ms: float | None
    sent_bytes_per_token: float
    ring_bytes_per_token: float

    def share_of(self, tpot_ms: float) -> float:
        """The part of the measured time of a token that is communication, 0 to 1 (above 1 the model is wrong)."""
        return self.token_ms / tpot_ms

    def sentence(self, tpot_ms: float | None = None) -> str:
        """One line for a person."""
        text = (
            f"{self.collectives_per_token:.0f} collectives and {self.token_ms:.2f} ms of communication per token "
            f"at concurrency {self.concurrency}"
        )
        if tpot_ms:
            text += f", {100 * self.share_of(tpot_ms):.0f} % of the {tpot_ms:.2f} ms measured"
        if self.floor_token_ms is not None:
            text += f"; the floor is {self.floor_token_ms:.2f} ms"
        return f"{text}; {self.sent_bytes_per_token / 1e3:.0f} kB sent per GPU and token"


def predict(
    shape: ModelShape,
    layout: Layout,
    curve: AllReduceCurve,
    *,
    concurrency: int,
    speculation: Speculation | None = None,
    acceptance_length: float = 1.0,
    sampled: bool = False,
    prompt_tokens_per_output_token: float = 0.0,
    chunk_rows: int = 2048,
    floor: AllReduceCurve | None = None,
) -> Prediction:
    """Predict one load. ``acceptance_length`` is 1 without speculation.

    ``prompt_tokens_per_output_token`` adds the bytes of prefill (in chunks of ``chunk_rows``), which counters see too.
    """
    if not 1 <= acceptance_length <= (speculation.steps + 1 if speculation else 1):
        raise ValueError(
            f"an acceptance length of {acceptance_length:g} is impossible with {speculation or 'no speculation'}"
        )
    step = decoding_step(shape, layout, concurrency, speculation, sampled=sampled)
    tokens = concurrency * acceptance_length
    step_s = sum(one.count * _seconds(one, curve) for one in step)
    prefill = forward_pass(shape, layout, chunk_rows, logits_rows=1) if prompt_tokens_per_output_token else ()
    prompt_share = prompt_tokens_per_output_token / chunk_rows
    return Prediction(
        concurrency,
        acceptance_length,
        count(step),
        count(step) / acceptance_length,
        step_s * 1e3,
        step_s * 1e3 / acceptance_length,
        None if floor is None else sum(one.count * _seconds(one, floor) for one in step) * 1e3 / acceptance_length,
        _sent(step, curve) / tokens + _sent(prefill, curve) * prompt_share,
        ring_bytes(step) / tokens + ring_bytes(prefill) * prompt_share,
    )


def _alike(one: Collective, curve: AllReduceCurve) -> float:
    """The message of an all-reduce among the probed GPUs that sends as many bytes as this collective."""
    if curve.ranks < 2:
        return float(one.message_bytes)
    return one.ring_bytes * curve.ranks / (2 * (curve.ranks - 1))


def _seconds(one: Collective, curve: AllReduceCurve) -> float:
    return curve.seconds(_alike(one, curve))


def _sent(collectives: Sequence[Collective], curve: AllReduceCurve) -> float:
    return sum(one.count * one.share * curve.sent_bytes(_alike(one, curve)) for one in collectives)
