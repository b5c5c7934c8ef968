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
    """The space's benchmark section as a plan; brief, with the same concurrencies, for the rehearsal engine.

    A level that occurs twice is measured once.
    """
    plan = Plan.model_validate({**space.benchmark.plan(), "prompts": parameters.prompts or space.benchmark.prompts})
    levels = tuple({level.name: level for level in plan.levels}.values())
    if parameters.engine == "rehearsal":
        brief = {level.concurrency: _rehearsed(level) for level in levels}
        return plan.model_copy(update={"levels": tuple(brief.values()), "warm_up_s": 0.0})
    return plan.model_copy(update={"levels": levels})


def level_weights(space: Space, plan: Plan) -> dict[str, float]:
    """Weight of each level in the score, by the level's name in the plan."""
    weights: dict[str, float] = {}
    for planned in space.benchmark.levels:
        for level in plan.levels:
            asked_alike = level.prompt_tokens in (planned.prompt_tokens, None)
            if level.concurrency == planned.concurrency and asked_alike:
                weights.setdefault(level.name, planned.weight)
    return weights


def _rehearsed(level: Level) -> Level:
    return Level(level.concurrency, None, _REHEARSED_TOKENS, max(level.concurrency, _REHEARSED_REQUESTS))
