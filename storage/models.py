"""The tables, as SQLAlchemy 2 declarative models. Times are unix seconds, memory is GB, lengths are tokens.

They live beside Optuna's own tables in one database, and no name is used twice.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, Double, ForeignKey, Index, LargeBinary, String, Text, TypeDecorator, UniqueConstraint
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Document(TypeDecorator[Any]):
    """A JSON value kept as text, so that NaN, order and every database's quirks survive.

    A row that some other hand has spoilt is read as ``{"unreadable": its first characters}``: one bad row never stops
    a search.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """To text."""
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """From text."""
        if value is None:
            return None
        try:
            return json.loads(value)
        except ValueError:
            return {"unreadable": value[:200]}


class Base(DeclarativeBase):
    """Where the tables are registered."""

    type_annotation_map = {float: Double(53), dict[str, Any]: Document, list[str]: Document}  # noqa: RUF012


class EnvironmentRow(Base):
    """Hardware and versions that launches ran on."""

    __tablename__ = "environments"

    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), unique=True)
    host: Mapped[str] = mapped_column(String(255))
    details: Mapped[dict[str, Any]]
    recorded_at: Mapped[float]


class ConfigurationRow(Base):
    """A configuration as asked, and as the engine resolved it (the same question may resolve anew in a new version)."""

    __tablename__ = "configurations"
    __table_args__ = (UniqueConstraint("identity", "resolved_identity", name="uq_configurations_identity"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    identity: Mapped[str] = mapped_column(String(64))
    resolved_identity: Mapped[str] = mapped_column(String(64), index=True)
    asked: Mapped[dict[str, Any]]
    resolved: Mapped[dict[str, Any] | None]


class SearchRow(Base):
    """One search: space, plan and baseline. Optuna's study of the same name holds the trials."""

    __tablename__ = "searches"

    id: Mapped[int] = mapped_column(primary_key=True)
    study_name: Mapped[str] = mapped_column(String(512), unique=True)
    space: Mapped[str] = mapped_column(String(255))
    space_yaml: Mapped[str] = mapped_column(Text)
    model: Mapped[str] = mapped_column(Text)
    baseline_configuration_id: Mapped[int | None] = mapped_column(ForeignKey("configurations.id"))
    plan: Mapped[dict[str, Any]]
    created_at: Mapped[float]
    rehearsal: Mapped[bool]


class LaunchRow(Base):
    """One start of an engine, from the command to the teardown."""

    __tablename__ = "launches"
    __table_args__ = (
        Index("ix_launches_study", "study_name", "trial_number"),
        Index("ix_launches_outcome", "outcome", "host"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    study_name: Mapped[str] = mapped_column(String(512))
    trial_number: Mapped[int | None]
    purpose: Mapped[str] = mapped_column(String(32))
    configuration_id: Mapped[int] = mapped_column(ForeignKey("configurations.id"), index=True)
    environment_id: Mapped[int | None] = mapped_column(ForeignKey("environments.id"))
    host: Mapped[str] = mapped_column(String(255))
    owner_pid: Mapped[int]
    owner_incarnation: Mapped[str] = mapped_column(String(128))
    pid: Mapped[int | None]
    command: Mapped[list[str]]
    log_path: Mapped[str | None] = mapped_column(Text)
    started_at: Mapped[float]
    ready_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    outcome: Mapped[str] = mapped_column(String(32))
    failure_rank: Mapped[str | None] = mapped_column(String(64))
    failure_phase: Mapped[str | None] = mapped_column(String(64))
    failure_cause: Mapped[str | None] = mapped_column(Text)
    failure_blame: Mapped[str | None] = mapped_column(String(32))
    failure_remedy: Mapped[str | None] = mapped_column(Text)
    failure_evidence: Mapped[str | None] = mapped_column(Text)
    server_info: Mapped[dict[str, Any] | None]
    teardown: Mapped[dict[str, Any] | None]
    rehearsal: Mapped[bool]


class PhaseRow(Base):
    """One phase of one rank of a launch."""

    __tablename__ = "phases"
    __table_args__ = (UniqueConstraint("launch_id", "rank", "name", name="uq_phases_launch_rank_name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    launch_id: Mapped[int] = mapped_column(ForeignKey("launches.id"))
    rank: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(64))
    started_at: Mapped[float | None]
    elapsed_s: Mapped[float | None]
    memory_used_gb: Mapped[float | None]
    memory_left_gb: Mapped[float | None]
    progress: Mapped[float | None]
    done: Mapped[bool]


class MeasurementRow(Base):
    """A level, measured: the figures that queries need. All of it, samples too, is in `MeasurementDetailRow`."""

    __tablename__ = "measurements"
    __table_args__ = (Index("ix_measurements_launch", "launch_id", "level"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    launch_id: Mapped[int] = mapped_column(ForeignKey("launches.id"))
    level: Mapped[str] = mapped_column(String(64))
    concurrency: Mapped[int]
    prompt_tokens: Mapped[int | None]
    output_tokens: Mapped[int]
    requests: Mapped[int]
    repeat: Mapped[int]
    started_at: Mapped[float]
    duration_s: Mapped[float | None]
    completed: Mapped[int]
    failed: Mapped[int]
    output_throughput: Mapped[float | None]
    request_throughput: Mapped[float | None]
    ttft_ms_mean: Mapped[float | None]
    ttft_ms_p50: Mapped[float | None]
    ttft_ms_p90: Mapped[float | None]
    ttft_ms_p99: Mapped[float | None]
    itl_ms_mean: Mapped[float | None]
    itl_ms_p50: Mapped[float | None]
    itl_ms_p90: Mapped[float | None]
    itl_ms_p99: Mapped[float | None]
    tpot_ms_mean: Mapped[float | None]
    tpot_ms_p50: Mapped[float | None]
    tpot_ms_p90: Mapped[float | None]
    tpot_ms_p99: Mapped[float | None]
    latency_ms_mean: Mapped[float | None]
    latency_ms_p50: Mapped[float | None]
    latency_ms_p90: Mapped[float | None]
    latency_ms_p99: Mapped[float | None]
    acceptance_length: Mapped[float | None]
    acceptance_rate: Mapped[float | None]
    warm_up_s: Mapped[float | None]
    steady: Mapped[bool]
    pcie_bytes_per_token: Mapped[float | None]
    nvlink_bytes_per_token: Mapped[float | None]


class MeasurementDetailRow(Base):
    """Everything of a measurement, apart from the figures so that a leaderboard never has to read past it."""

    __tablename__ = "measurement_details"

    measurement_id: Mapped[int] = mapped_column(ForeignKey("measurements.id"), primary_key=True)
    detail: Mapped[dict[str, Any]]
    sample_count: Mapped[int]
    samples: Mapped[bytes] = mapped_column(LargeBinary)


class ArtifactRow(Base):
    """A file kept in the artifact folder; the database holds where it is and what it must be."""

    __tablename__ = "artifacts"

    id: Mapped[int] = mapped_column(primary_key=True)
    uid: Mapped[str] = mapped_column(String(32), unique=True)
    study_name: Mapped[str | None] = mapped_column(String(512), index=True)
    launch_id: Mapped[int | None] = mapped_column(ForeignKey("launches.id"), index=True)
    kind: Mapped[str] = mapped_column(String(64))
    filename: Mapped[str] = mapped_column(Text)
    path: Mapped[str] = mapped_column(Text)
    sha256: Mapped[str] = mapped_column(String(64))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    recorded_at: Mapped[float]
