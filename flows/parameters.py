"""What a person chooses when a search is started; also the form in Prefect's UI."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from flows.budget import deadline

DEFAULT_STORAGE = "sqlite:///quietlane.db"


class TuneParameters(BaseModel):
    """One search over one space."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: str = Field("nextn", description="A shipped space (nextn, nextn-h200, cpu) or the path of a space file.")
    trials: int | None = Field(None, ge=1, le=10_000, description="Configurations to try; the space's budget if empty.")
    hours: float | None = Field(
        None, gt=0, le=24 * 14, description="Hours in which every launch must have ended, those of confirming too."
    )
    until: str | None = Field(
        None, description="The same as a time: 07:30, 07:30 Europe/Berlin or 2026-12-01 07:30 Europe/Berlin."
    )
    confirm: bool = Field(
        False, description="At the end, launch the best ones and the baseline again until the verdict is certain."
    )
    storage: str = Field(
        DEFAULT_STORAGE, min_length=1, description="SQLAlchemy URL of the study (SQLite or PostgreSQL)."
    )
    study: str | None = Field(
        None, max_length=200, description="Name of the study; an existing one is continued. The space's name if empty."
    )
    engine: Literal["sglang", "rehearsal"] = Field(
        "sglang",
        description="rehearsal is a stand-in without GPUs, for trying quietlane out: its figures are invented.",
    )
    output: Path = Field(
        Path("quietlane-runs"), description="Folder for logs, the leaderboard and the winning launch command."
    )
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the sampler and of the prompts' order.")
    prompts: Path | None = Field(
        None, description="JSONL file, one prompt a line; the space's or the bundled ones if empty."
    )
    port: int | None = Field(
        None, ge=1024, le=65535, description="Port of the engine on loopback; a free one if empty."
    )
    gpus: tuple[int, ...] | None = Field(None, description="GPUs to use; as many as the space needs if empty.")
    preflight: bool = Field(
        True, description="Let the installed SGLang resolve each configuration before it is launched."
    )
    cross_check: bool = Field(
        False, description="Run sglang.bench_serving beside each level of the baseline and the enqueued configurations."
    )
    start_timeout_s: float = Field(1800, ge=5, le=4 * 3600, description="Longest start of an engine, in seconds.")

    @field_validator("until")
    @classmethod
    def _readable(cls, until: str | None) -> str | None:
        if until is not None:
            deadline(until)
        return until

    def ends(self, now: float) -> float | None:
        """Unix seconds at which every launch must have ended, the earlier of both limits; ``None`` without one."""
        limits = [now + self.hours * 3600] if self.hours else []
        return min([*limits, deadline(self.until).timestamp()] if self.until else limits, default=None)

    @field_validator("gpus")
    @classmethod
    def _distinct(cls, gpus: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if gpus is not None and (len(set(gpus)) != len(gpus) or min(gpus, default=0) < 0):
            raise ValueError(f"gpus {list(gpus)}: each GPU once, counted from 0")
        return gpus
