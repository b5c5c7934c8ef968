"""Whether two throughputs differ: an interval for their ratio, and the verdict. Pure.

Throughputs multiply, so their logarithms are compared. Launches are what repeats (an engine that is started again
meets other memory, clocks and neighbours), so repeats are launches: Welch's t interval (B. L. Welch, Biometrika 34,
1947) over them. With one launch a side only the noise within that launch can be seen, by a bootstrap over blocks of
completed requests (H. R. Künsch, Annals of Statistics 17, 1989), and the interval says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from benchmark.results import Measurement

Verdict = Literal["faster", "slower", "cannot be told apart", "unknown"]

_RESAMPLES = 2000
# Fewer completed requests than this cannot even show the noise within a launch.
_FEWEST_REQUESTS = 8


@dataclass(frozen=True)
class Interval:
    """A ratio of throughputs (1.03: the first is 3 % faster) with its confidence interval.

    ``low`` and ``high`` are ``None`` where they are unknown; ``within_one_launch`` where they leave out what differs
    between launches, so that the true interval is wider.
    """

    low: float | None
    mid: float
    high: float | None
    verdict: Verdict
    confidence: float = 0.95
    within_one_launch: bool = False

    def sentence(self) -> str:
        """``faster by 3.1 % (1.2 to 5.0)`` and its like."""
        percent = 100 * (self.mid - 1)
        if self.low is None or self.high is None:
            return f"{percent:+.1f} %, interval unknown (one launch a side)"
        low, high = 100 * (self.low - 1), 100 * (self.high - 1)
        within = ", within one launch" if self.within_one_launch else ""
        if self.verdict == "faster":
            return f"faster by {percent:.1f} % ({low:.1f} to {high:.1f}{within})"
        if self.verdict == "slower":
            return f"slower by {-percent:.1f} % ({-high:.1f} to {-low:.1f}{within})"
        return f"cannot be told apart ({percent:+.1f} %, {low:+.1f} to {high:+.1f}{within})"


def ratio_interval(
    a: Sequence[float],
    b: Sequence[float],
    confidence: float = 0.95,
    *,
    within: tuple[Measurement, Measurement] | None = None,
) -> Interval:
    """The ratio of a's throughput to b's, from the throughputs of their launches.

    With one launch a side, ``within`` (a measurement of each) gives an interval of the noise within a launch, and
    without it the interval is unknown. With several launches on one side only, their spread serves for both.
    Raises ``ValueError`` for throughputs that are not positive or an empty side.
    """
    first, second = _logarithms(a), _logarithms(b)
    middle = float(first.mean() - second.mean())
    if len(first) == 1 and len(second) == 1:
        return _within_one_launch(middle, within, confidence)
    error, freedom = _standard_error(first, second)
    half = float(stats.t.ppf(0.5 + confidence / 2, freedom)) * error
    return _interval(middle - half, middle, middle + half, confidence)


def launches_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Interval of one configuration's throughput over its launches, ``None`` for fewer than two."""
    logarithms = _logarithms(values)
    if len(logarithms) < 2:
        return None
    error = float(logarithms.std(ddof=1)) / math.sqrt(len(logarithms))
    half = float(stats.t.ppf(0.5 + confidence / 2, len(logarithms) - 1)) * error
    return math.exp(logarithms.mean() - half), math.exp(logarithms.mean() + half)


def relative_half_width(measurement: Measurement, confidence: float = 0.95) -> float | None:
    """Half of the interval of a measurement's throughput within its launch, as a share of it; ``None`` if too short."""
    logarithms = _resampled(measurement, np.random.default_rng(0))
    if logarithms is None:
        return None
    low, high = np.quantile(logarithms, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return float(math.expm1((high - low) / 2))


def _logarithms(values: Sequence[float]) -> np.ndarray:
    if not len(values):
        raise ValueError("a side has no throughput; give at least one launch of each")
    array = np.asarray(values, dtype=float)
    if not np.all(np.isfinite(array)) or np.any(array <= 0):
        raise ValueError(f"a throughput of {array.min():g} tok/s cannot be compared; leave failed launches out")
    return np.log(array)


def _standard_error(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom."""
    n, m = len(first), len(second)
    if n == 1 or m == 1:
        several = first if n > 1 else second
        return float(several.std(ddof=1)) * math.sqrt(1 / n + 1 / m), len(several) - 1
    u, v = float(first.var(ddof=1)) / n, float(second.var(ddof=1)) / m
    if u + v == 0:
        return 0.0, n + m - 2
    return math.sqrt(u + v), (u + v) ** 2 / (u**2 / (n - 1) + v**2 / (m - 1))


def _within_one_launch(middle: float, within: tuple[Measurement, Measurement] | None, confidence: float) -> Interval:
    generator = np.random.default_rng(0)
    resampled = [_resampled(measurement, generator) for measurement in within or ()]
    if len(resampled) < 2 or resampled[0] is None or resampled[1] is None:
        return Interval(None, math.exp(middle), None, "unknown", confidence)
    spread = resampled[0] - resampled[0].mean() - (resampled[1] - resampled[1].mean())
    low, high = np.quantile(spread, [0.5 - confidence / 2, 0.5 + confidence / 2])
    return _interval(middle + float(low), middle, middle + float(high), confidence, within_one_launch=True)


def _resampled(measurement: Measurement, generator: np.random.Generator) -> np.ndarray | None:
    """Logarithms of the throughputs that a measurement might as well have had, ``None`` if it was too short.

    Completed requests in the order of their ends, each with the time since the end before it; blocks of as many as
    are in flight together (at least the square root of all) are drawn, since such requests share their fate.
    """
    done = sorted(
        ((s.started_s + s.latency_ms / 1e3, s.output_tokens) for s in measurement.samples if s.error is None),
    )
    count = len(done)
    if count < _FEWEST_REQUESTS:
        return None
    times = np.diff([0.0, *(end for end, _ in done)])
    tokens = np.array([number for _, number in done], dtype=float)
    block = min(max(math.isqrt(count), measurement.level.concurrency), count // 2)
    draws = -(-count // block)
    starts = generator.integers(0, count, size=(_RESAMPLES, draws))
    places = (starts[:, :, None] + np.arange(block)) % count
    flat = places.reshape(_RESAMPLES, -1)
    seconds = times[flat].sum(axis=1)
    if np.any(seconds <= 0):
        return None
    return np.log(tokens[flat].sum(axis=1) / seconds)


def _interval(
    low: float, middle: float, high: float, confidence: float, *, within_one_launch: bool = False
) -> Interval:
    verdict: Verdict = "faster" if low > 0 else "slower" if high < 0 else "cannot be told apart"
    return Interval(math.exp(low), math.exp(middle), math.exp(high), verdict, confidence, within_one_launch)
