"""The plain sections of a space: the model, the engine, the benchmark plan and the budget."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from engine.configuration import FlagValue
from search_spaces.values import ValueField

_FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = {"--host": "the launcher", "--port": "the launcher", "--model-path": "model.path"}


def flag_name(name: str) -> str:
    """A flag as it is, once it is known to be one that a space may set; raises ValueError else."""
    if not _FLAG.fullmatch(name):
        raise ValueError(f"{name!r} is no flag: write it in full, as in --max-running-requests")
    if name in _OURS:
        raise ValueError(f"{name} is set by {_OURS[name]} and cannot be set here: take it away")
    return name


def variable_name(name: str) -> str:
    """A name of an environment variable as it is; raises ValueError for anything else."""
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an environment variable, such as NCCL_PROTO")
    return name


Flag = Annotated[str, AfterValidator(flag_name)]
Variable = Annotated[str, AfterValidator(variable_name)]
Word = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A mapping of a space: immutable, and no key that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(Section):
    """The model that is served."""

    path: Word = Field(
        description="folder of the model, or its id on the Hugging Face hub; ${NAME:-default} is replaced"
    )


class EngineProgram(Section):
    """The program that serves it, and what every launch of it gets."""

    command: tuple[Word, ...] = Field(
        default=("python", "-m", "sglang.launch_server"),
        min_length=1,
        description="words that the command line begins with",
    )
    interpreter: Word | None = Field(
        default=None,
        description="Python that takes the place of the command's first word; ${NAME:-default} is replaced",
    )
    version: str | None = Field(
        default=None, description='version of SGLang that the flags were written for, such as "0.5.23"'
    )
    gpus: int = Field(default=1, ge=0, le=64, description="how many GPUs a launch occupies; 0 on a CPU")
    flags: dict[Flag, ValueField] = Field(
        default_factory=dict, description="flags of every launch; true is a bare flag"
    )
    environment: dict[Variable, ValueField] = Field(
        default_factory=dict, description="environment variables of every launch; ${NAME:-default} is replaced"
    )

    @property
    def argv(self) -> tuple[str, ...]:
        """How the command line begins: the interpreter, then the rest of the command."""
        return (self.interpreter or self.command[0], *self.command[1:])

    @property
    def base_flags(self) -> dict[str, FlagValue]:
        """The flags of every launch, without those left unset."""
        return {name: value for name, value in self.flags.items() if value is not None}

    @property
    def base_environment(self) -> dict[str, str]:
        """The variables of every launch as texts, without those left unset."""
        return {name: str(value) for name, value in self.environment.items() if value is not None}


class PlannedLevel(Section):
    """One load of the benchmark, and how much it counts."""

    concurrency: int = Field(ge=1, le=4096, description="requests in flight, 1 to 4096")
    prompt_tokens: int | None = Field(
        default=None,
        ge=1,
        le=2_000_000,
        description="length that prompts are brought to; left out, they stay as they are",
    )
    output_tokens: int = Field(default=256, ge=1, le=1_000_000, description="tokens asked for in each answer")
    requests: int | None = Field(
        default=None, ge=1, le=1_000_000, description="requests measured; left out, twice the concurrency, at least 16"
    )
    weight: float = Field(default=1.0, gt=0, description="weight in the score, relative to the other levels")


class Limits(Section):
    """What a winner must keep to."""

    ttft_ms: float | None = Field(
        default=None, gt=0, description="most milliseconds to the first token, mean of a level"
    )
    itl_ms: float | None = Field(default=None, gt=0, description="most milliseconds between tokens, mean of a level")
    memory_left_gb: float | None = Field(default=None, ge=0, description="least memory left on each GPU, in GB")


class BenchmarkPlan(Section):
    """How every configuration is measured."""

    levels: tuple[PlannedLevel, ...] = Field(min_length=1, description="list of loads, each with its concurrency")
    temperature: float = Field(
        default=0.7, ge=0, le=2, description="sampling temperature, 0 to 2; 0 is greedy, which flatters speculation"
    )
    seed: int = Field(default=1, ge=0, description="whole number that orders the prompts")
    prompts: Word | None = Field(
        default=None,
        description="JSONL file of prompts, one a line, relative to the space; left out, the bundled prompts",
    )
    endpoint: Literal["/generate", "/v1/chat/completions", "/v1/completions"] = Field(
        default="/generate", description="where requests go: /generate, /v1/chat/completions or /v1/completions"
    )
    ignore_eos: bool = Field(
        default=True, description="true: answers run to output_tokens, so that every engine does equal work"
    )
    warm_up_s: float = Field(
        default=30.0, ge=0, le=3600, description="longest warm-up before each load, 0 to 3600 seconds"
    )
    max_level_s: float | None = Field(
        default=None, gt=0, le=86400, description="seconds after which a load starts no more requests"
    )
    request_timeout_s: float = Field(
        default=600.0, gt=0, le=86400, description="seconds after which a request has failed"
    )
    answer_tokens: int = Field(
        default=64, ge=8, le=4096, description="tokens of each greedy answer that is compared with the baseline's"
    )
    limits: Limits = Field(default_factory=Limits, description="limits such as {ttft_ms: 2000}")

    def plan(self) -> dict[str, Any]:
        """What the benchmark needs to know, by the names of ``benchmark.plan.Plan``: all but what is judged."""
        values = self.model_dump(exclude={"limits": True, "answer_tokens": True, "levels": {"__all__": {"weight"}}})
        return {name: value for name, value in values.items() if value is not None}


class Budget(Section):
    """How long a search may go on unless the person says otherwise."""

    trials: int = Field(default=40, ge=1, description="most configurations tried")
    hours: float = Field(default=8.0, gt=0, description="most hours")
