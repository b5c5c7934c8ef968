"""The plan: its defaults, its bounds and what it refuses."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from benchmark.plan import Plan
from benchmark.results import Level, RequestSample


def test_the_default_plan_is_concurrency_1_4_16_32_with_prompts_as_they_are() -> None:
    levels = Plan().levels
    assert [level.concurrency for level in levels] == [1, 4, 16, 32]
    assert [level.requests for level in levels] == [16, 16, 32, 64]
    assert all(level.prompt_tokens is None for level in levels)


def test_levels_are_written_as_sections_or_as_bare_concurrencies() -> None:
    plan = Plan.model_validate({"levels": [8, {"concurrency": 2, "prompt_tokens": 32768, "output_tokens": 128}]})
    assert plan.levels == (Level(8, None, 256, 16), Level(2, 32768, 128, 16))
    assert plan.levels[1].name == "c2-p32768"


@pytest.mark.parametrize(
    "wrong",
    [
        {"levels": []},
        {"levels": [0]},
        {"levels": [True]},
        {"levels": [{"concurrency": 4, "prompt_lenght": 3}]},
        {"endpoint": "/v2"},
        {"temperature": -1},
        {"api_key_env": "sk-not-a-name"},
        {"api_key": "secret"},
        {"request_timeout_s": 0},
    ],
)
def test_what_a_plan_does_not_know_or_cannot_be_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Plan.model_validate(wrong)


def test_a_plan_survives_json_and_describes_every_field() -> None:
    plan = Plan.model_validate({"levels": [3]})
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert all("description" in field for field in Plan.model_json_schema()["properties"].values())


def test_time_per_token_is_counted_after_the_tokens_that_came_with_the_first_chunk() -> None:
    gaps = (5.0,) * 27
    assert RequestSample(0, 155, 20, 4, 30, itl_ms=gaps).tpot_ms == 5
    assert RequestSample(0, 165, 20, 4, 30).tpot_ms == 5
    assert RequestSample(0, 20, 20, 4, 1).tpot_ms is None
