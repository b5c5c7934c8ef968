"""The plan that every configuration of a search is measured with."""

from __future__ import annotations

from benchmark.plan import Plan
from benchmark.results import Level
from flows.parameters import TuneParameters
from search_spaces import Space

# A rehearsed load says nothing about an engine: it is only long enough to show what a search looks like.
_REHEARSED_TOKENS = 16
_REHEARSED_REQUESTS = 4


def measuring_plan(space: Space, parameters: TuneParameters) -> Plan:
    """The space's benchmark section as a plan; brief, with the same concurrencies, for the rehearsal engine."""
    section = space.benchmark
    rehearsal = parameters.engine == "rehearsal"
    levels = tuple(
        Level(
            concurrency=planned.concurrency,
            prompt_tokens=None if rehearsal else planned.prompt_tokens,
            output_tokens=_REHEARSED_TOKENS if rehearsal else planned.output_tokens,
            requests=max(planned.concurrency, _REHEARSED_REQUESTS) if rehearsal else planned.requests,
        )
        for planned in section.levels
    )
    names = [level.name for level in levels]
    distinct = tuple(level for i, level in enumerate(levels) if level.name not in names[:i])
    return Plan(
        levels=distinct,
        prompts=parameters.prompts,
        temperature=section.temperature,
        ignore_eos=section.ignore_eos,
        seed=section.seed,
        warm_up_s=0.0 if rehearsal else section.warm_up_s,
    )
