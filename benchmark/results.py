"""What a measurement is: samples, one a request, and the figures made of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Level:
    """One load: so many requests at a time, prompts and answers of such a length.

    Attributes:
        concurrency: requests in flight.
        prompt_tokens: length that prompts are brought to; ``None`` takes them as they are.
        output_tokens: tokens asked for in each answer.
        requests: requests measured at this level.
    """

    concurrency: int
    prompt_tokens: int | None = None
    output_tokens: int = 256
    requests: int = 32

    @property
    def name(self) -> str:
        """Short name for keys and tables: ``c8`` or ``c8-p32768``."""
        return f"c{self.concurrency}" + (f"-p{self.prompt_tokens}" if self.prompt_tokens else "")


@dataclass(frozen=True)
class RequestSample:
    """One request. Times in milliseconds; tokens as the server counted them (``usage`` or ``meta_info``)."""

    started_s: float
    latency_ms: float
    ttft_ms: float | None
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    itl_ms: tuple[float, ...] = ()
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    error: str | None = None

    @property
    def tpot_ms(self) -> float | None:
        """Time per output token after the first chunk's; ``None`` for answers of one token.

        The tokens that came with the first chunk took no time after it (with speculation they are several), so the
        gaps are divided over the tokens that they brought, where the server's counts tell how many.
        """
        if self.error or self.ttft_ms is None or self.output_tokens < 2:
            return None
        if self.itl_ms:
            return sum(self.itl_ms) / len(self.itl_ms)
        return (self.latency_ms - self.ttft_ms) / (self.output_tokens - 1)


@dataclass(frozen=True)
class Distribution:
    """Mean and percentiles of one quantity."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: list[float]) -> Distribution | None:
        """The distribution of some values, ``None`` of none."""
        if not values:
            return None
        p50, p90, p99 = np.percentile(values, [50, 90, 99])
        return cls(float(np.mean(values)), float(p50), float(p90), float(p99))


@dataclass(frozen=True)
class Measurement:
    """A level, measured. Throughputs count completed requests only; failed ones are counted and excluded."""

    level: Level
    started_at: float
    duration_s: float
    completed: int
    failed: int
    output_throughput: float
    request_throughput: float
    ttft_ms: Distribution | None
    itl_ms: Distribution | None
    tpot_ms: Distribution | None
    latency_ms: Distribution | None
    acceptance_length: float | None
    acceptance_rate: float | None
    warm_up_s: float
    steady: bool
    samples: tuple[RequestSample, ...] = field(default=(), repr=False)
    pcie_bytes_per_token: float | None = None
    nvlink_bytes_per_token: float | None = None
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values without the samples, as stored in the study."""
        values = asdict(self)
        del values["samples"]
        return values
