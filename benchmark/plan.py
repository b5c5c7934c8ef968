"""A plan: how a running engine is measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PositiveInt, WithJsonSchema

from benchmark.results import Level

Endpoint = Literal["/generate", "/v1/chat/completions", "/v1/completions"]


class LevelSection(BaseModel):
    """One level as a person writes it; ``requests`` left out becomes ``max(2 x concurrency, 16)``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrency: PositiveInt = Field(le=4096, description="Requests in flight at any time.")
    prompt_tokens: PositiveInt | None = Field(
        None,
        le=2_000_000,
        description="Length that prompts are brought to, in tokens; left out, they stay as they are.",
    )
    output_tokens: PositiveInt = Field(256, le=1_000_000, description="Tokens asked for in each answer.")
    requests: PositiveInt | None = Field(
        None, le=1_000_000, description="Requests measured; left out: twice the concurrency, at least 16."
    )

    def level(self) -> Level:
        """The level with its number of requests decided."""
        requests = self.requests or max(2 * self.concurrency, 16)
        return Level(self.concurrency, self.prompt_tokens, self.output_tokens, requests)


def _as_level(given: Any) -> Level:
    """A level from a section, or from a bare number that is its concurrency."""
    if isinstance(given, Level):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        given = {"concurrency": given}
    return LevelSection.model_validate(given).level()


AnyLevel = Annotated[
    Level,
    BeforeValidator(_as_level),
    WithJsonSchema({"anyOf": [LevelSection.model_json_schema(), {"type": "integer", "minimum": 1, "maximum": 4096}]}),
]


class Plan(BaseModel):
    """What load is applied, for how long it warms up, and through which endpoint.

    Everything here has a default, so that ``Plan()`` measures concurrency 1, 4, 16 and 32 with the bundled prompts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    levels: tuple[AnyLevel, ...] = Field(
        tuple(_as_level(concurrency) for concurrency in (1, 4, 16, 32)),
        min_length=1,
        description="Loads, in the order in which they are applied; a bare number is a concurrency.",
    )
    prompts: Path | None = Field(
        None, description="JSONL file, one prompt a line; left out, the bundled prompts are used."
    )
    endpoint: Endpoint = Field(
        "/generate", description="SGLang's own endpoint, or an OpenAI one (which applies the chat template, or not)."
    )
    model: str = Field("default", min_length=1, description="Model name sent to the OpenAI endpoints.")
    temperature: float = Field(0.0, ge=0, le=2, description="Sampling temperature; 0 is greedy.")
    ignore_eos: bool = Field(
        True, description="Answers run to their full length, so that every engine does equal work."
    )
    seed: int = Field(0, ge=0, description="Orders the prompts: equal seeds give equal prompts to every engine.")
    warm_up_s: float = Field(30.0, ge=0, le=3600, description="Longest warm-up at each level, in seconds; 0 skips it.")
    warm_up_window_s: float = Field(1.0, ge=0.05, le=60, description="Shortest window of throughput, in seconds.")
    warm_up_windows: int = Field(3, ge=2, le=20, description="Windows in a row that must agree.")
    warm_up_steadiness_percent: float = Field(
        10.0, gt=0, le=100, description="Warm-up ends when these windows lie within so many percent of their mean."
    )
    min_level_s: float = Field(0.0, ge=0, le=86400, description="A level goes on for at least so many seconds.")
    max_level_s: float | None = Field(
        None, gt=0, le=86400, description="No request of a level starts later than so many seconds into it."
    )
    request_timeout_s: float = Field(600.0, gt=0, le=86400, description="A request that takes longer has failed.")
    api_key_env: str | None = Field(
        None,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="NAME of the environment variable that holds the API key; the key itself is never stored.",
    )

    def headers(self) -> dict[str, str]:
        """HTTP headers of every request; the API key is read here, when it is needed."""
        key = os.environ.get(self.api_key_env, "") if self.api_key_env else ""
        return {"Authorization": f"Bearer {key}"} if key else {}
