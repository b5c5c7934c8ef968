"""What is read back: plain frozen records, whole and apart from any database session."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from benchmark.results import Measurement
from engine.configuration import Configuration
from engine.failure import Failure
from engine.phase import Phase

Purpose = Literal["trial", "baseline", "confirm"]
Outcome = Literal[
    "running",  # started, not ready yet
    "ready",  # serving
    "measured",  # every level of the plan was measured
    "pruned",  # stopped early: it could not win
    "failed",  # died or never became ready
    "rejected",  # refused by the engine's own arguments before a start
    "duplicate",  # resolves as another one does, whose result was used
    "wrong answers",
    "stopped",  # by the user, or at the end of the window
    "lost",  # its process was gone when somebody looked
]
PURPOSES: tuple[str, ...] = get_args(Purpose)
OUTCOMES: tuple[str, ...] = get_args(Outcome)
UNFINISHED: tuple[str, ...] = ("running", "ready")


@dataclass(frozen=True)
class EnvironmentRecord:
    """Hardware and versions."""

    id: int
    fingerprint: str
    host: str
    details: dict[str, Any]
    recorded_at: float


@dataclass(frozen=True)
class ConfigurationRecord:
    """A configuration as asked and as resolved. `resolved_identity` is empty where nothing resolved it."""

    id: int
    identity: str
    resolved_identity: str
    configuration: Configuration
    resolved: dict[str, Any] | None


@dataclass(frozen=True)
class SearchRecord:
    """A search and what it was asked for."""

    id: int
    study_name: str
    space: str
    space_yaml: str
    model: str
    baseline: Configuration | None
    plan: dict[str, Any]
    created_at: float
    rehearsal: bool


@dataclass(frozen=True)
class LaunchRecord:
    """One start of an engine."""

    id: int
    study_name: str
    trial_number: int | None
    purpose: str
    configuration_id: int
    configuration: Configuration
    resolved: dict[str, Any] | None
    resolved_identity: str
    environment_id: int | None
    host: str
    owner_pid: int
    pid: int | None
    command: tuple[str, ...]
    log_path: Path | None
    started_at: float
    ready_at: float | None
    ended_at: float | None
    outcome: str
    failure: Failure | None
    server_info: dict[str, Any] | None
    teardown: dict[str, Any] | None
    rehearsal: bool


@dataclass(frozen=True)
class MeasurementRecord:
    """A measurement (without samples, see `Store.samples`) and whose it is."""

    id: int
    launch_id: int
    study_name: str
    trial_number: int | None
    purpose: str
    configuration_id: int
    repeat: int
    measurement: Measurement


@dataclass(frozen=True)
class PhaseRecord:
    """A phase and the launch it belongs to."""

    launch_id: int
    phase: Phase


@dataclass(frozen=True)
class ArtifactRecord:
    """A file that was kept."""

    id: int
    study_name: str | None
    launch_id: int | None
    kind: str
    filename: str
    path: Path
    sha256: str
    size_bytes: int
    recorded_at: float


class LevelResult(NamedTuple):
    """One level of one configuration in one study, over all its repeats: means, and the spread of the throughput.

    A tuple, since a leaderboard reads tens of thousands.
    """

    purpose: str
    trial_number: int | None
    configuration_id: int
    host: str
    level: str
    repeats: int
    output_throughput: float
    output_throughput_min: float
    output_throughput_max: float
    ttft_ms_p50: float | None
    tpot_ms_p50: float | None
    itl_ms_p99: float | None
    latency_ms_p99: float | None
    acceptance_length: float | None
    pcie_bytes_per_token: float | None
    failed: int
