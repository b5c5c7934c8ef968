"""How this rehearsal behaves: the REHEARSAL_* environment variables, read once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

VERSIONS = ("0.5.23", "0.5.17")


class SettingsError(Exception):
    """A REHEARSAL_* variable holds something that it cannot hold; the text is one sentence with the remedy."""


class Settings(NamedTuple):
    """The stage directions.

    ``speed`` scales the pauses of the start (1 is life-like minutes, 0 none); ``time_scale`` divides every serving
    time; ``ttft_ms``, ``tpot_ms`` and ``tokens_per_chunk`` fix the serving figures whatever the configuration;
    ``seed`` makes the noise repeatable (``None`` draws a new one a launch).
    """

    version: str = "0.5.23"
    speed: float = 1.0
    time_scale: float = 1.0
    seed: int | None = None
    noise: float = 1.0
    fault: str = ""
    configuration_faults: bool = True
    arch: str = "SM120"
    gpu_gb: float = 94.97
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    tokens_per_chunk: int | None = None
    leftover_s: float = 60.0


def _number(environment: Mapping[str, str], name: str, default: float | None, least: float) -> float | None:
    text = environment.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise SettingsError(f"{name}={text!r} is no number; give one of at least {least:g}, or unset it.") from None
    if not least <= value < float("inf"):
        raise SettingsError(f"{name}={text!r} is out of range; give a number of at least {least:g}, or unset it.")
    return value


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings that an environment asks for; raises SettingsError."""

    def number(name: str, default: float, least: float = 0.0) -> float:
        value = _number(environment, name, default, least)
        assert value is not None
        return value

    version = environment.get("REHEARSAL_VERSION", "").strip() or VERSIONS[0]
    if version not in VERSIONS:
        raise SettingsError(f"REHEARSAL_VERSION={version!r} is not rehearsed; choose one of {', '.join(VERSIONS)}.")
    seed = _number(environment, "REHEARSAL_SEED", None, 0)
    chunk = _number(environment, "REHEARSAL_TOKENS_PER_CHUNK", None, 1)
    return Settings(
        version=version,
        speed=number("REHEARSAL_SPEED", 1.0),
        time_scale=number("REHEARSAL_TIME_SCALE", 1.0, 0.001),
        seed=None if seed is None else int(seed),
        noise=number("REHEARSAL_NOISE", 1.0),
        fault=environment.get("REHEARSAL_FAULT", ""),
        configuration_faults=environment.get("REHEARSAL_CONFIGURATION_FAULTS", "1") != "0",
        arch=environment.get("REHEARSAL_ARCH", "") or "SM120",
        gpu_gb=number("REHEARSAL_GPU_GB", 94.97, 1.0),
        ttft_ms=_number(environment, "REHEARSAL_TTFT_MS", None, 0.0),
        tpot_ms=_number(environment, "REHEARSAL_TPOT_MS", None, 0.001),
        tokens_per_chunk=None if chunk is None else int(chunk),
        leftover_s=number("REHEARSAL_LEFTOVER_S", 60.0),
    )
