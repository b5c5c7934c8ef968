"""From samples to the figures of a measurement. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from benchmark.plan import Plan
from benchmark.results import Distribution, Level, Measurement, RequestSample


def is_steady(rates: Sequence[float], windows: int, percent: float) -> bool:
    """Whether the last ``windows`` throughputs all lie within so many percent of their mean."""
    last = rates[-windows:]
    if len(last) < windows:
        return False
    mean = sum(last) / windows
    return mean > 0 and all(abs(rate - mean) <= mean * percent / 100 for rate in last)


def acceptance(samples: Sequence[RequestSample]) -> tuple[float | None, float | None]:
    """Acceptance length and rate over all requests together: a request counts by its verification steps."""
    speculated = [sample for sample in samples if sample.acceptance_length]
    steps = [sample.output_tokens / (sample.acceptance_length or 1.0) for sample in speculated]
    if not sum(steps):
        return None, None
    length = sum(sample.output_tokens for sample in speculated) / sum(steps)
    rated = [(s.acceptance_rate, n) for s, n in zip(speculated, steps, strict=True) if s.acceptance_rate is not None]
    rate = sum(r * n for r, n in rated) / sum(n for _, n in rated) if rated else None
    return length, rate


def measurement_of(
    level: Level,
    samples: Sequence[RequestSample],
    *,
    started_at: float,
    duration_s: float,
    warm_up_s: float,
    steady: bool,
    plan: Plan,
) -> Measurement:
    """The figures of some samples; failed requests are counted and excluded."""
    completed = [sample for sample in samples if sample.error is None]
    tokens = sum(sample.output_tokens for sample in completed)
    length, rate = acceptance(completed)
    return Measurement(
        level=level,
        started_at=started_at,
        duration_s=duration_s,
        completed=len(completed),
        failed=len(samples) - len(completed),
        output_throughput=tokens / duration_s if duration_s > 0 else 0.0,
        request_throughput=len(completed) / duration_s if duration_s > 0 else 0.0,
        ttft_ms=Distribution.of([sample.ttft_ms for sample in completed if sample.ttft_ms is not None]),
        itl_ms=Distribution.of([gap for sample in completed for gap in sample.itl_ms]),
        tpot_ms=Distribution.of([sample.tpot_ms for sample in completed if sample.tpot_ms is not None]),
        latency_ms=Distribution.of([sample.latency_ms for sample in completed]),
        acceptance_length=length,
        acceptance_rate=rate,
        warm_up_s=warm_up_s,
        steady=steady,
        samples=tuple(samples),
        notes=tuple(_notes(level, samples, completed, steady, plan)),
    )


def _notes(
    level: Level, samples: Sequence[RequestSample], completed: Sequence[RequestSample], steady: bool, plan: Plan
) -> list[str]:
    """What a reader must know about these figures, one sentence each with its remedy."""
    notes: list[str] = []
    failed = [sample for sample in samples if sample.error is not None]
    if failed:
        notes.append(f"{len(failed)} of {len(samples)} requests failed, the first with: {failed[0].error}")
    if len(samples) < level.requests:
        why = "nearly all failed" if not completed else "the level's time was over"
        notes.append(f"only {len(samples)} of {level.requests} requests were sent, because {why}")
    if not plan.warm_up_s:
        notes.append("there was no warm-up; set warm_up_s above 0 for figures of a warm engine")
    elif not steady and completed:
        notes.append(f"throughput was not steady after {plan.warm_up_s:g} s of warm-up; raise warm_up_s")
    given = sum(sample.prompt_tokens for sample in completed)
    cached = sum(sample.cached_tokens for sample in completed)
    if given and cached > 0.1 * given:
        share = f"{100 * cached / given:.0f} %"
        notes.append(f"the prefix cache served {share} of the prompt tokens; use prompts with less in common")
    if level.prompt_tokens and completed:
        mean = given / len(completed)
        notes.append(f"prompts had {mean:.0f} tokens in the mean for {level.prompt_tokens} asked for")
    return notes
