"""Rows become records: every query of this room that only reads, whole and apart from its session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from benchmark.results import Distribution, Level, Measurement
from engine.configuration import Configuration
from engine.failure import Failure
from engine.phase import Phase
from storage.errors import StorageError
from storage.models import (
    ArtifactRow,
    ConfigurationRow,
    EnvironmentRow,
    LaunchRow,
    MeasurementDetailRow,
    MeasurementRow,
    PhaseRow,
    SearchRow,
)
from storage.records import (
    ArtifactRecord,
    ConfigurationRecord,
    EnvironmentRecord,
    LaunchRecord,
    LevelResult,
    MeasurementRecord,
    PhaseRecord,
    SearchRecord,
)
from storage.samples import unpack

_DISTRIBUTIONS = ("ttft_ms", "itl_ms", "tpot_ms", "latency_ms")


def configuration_of(asked: Any) -> Configuration:
    """A stored configuration; an unreadable one is empty."""
    if not isinstance(asked, dict):
        return Configuration()
    return Configuration(asked.get("flags") or {}, asked.get("environment") or {})


def environments(session: Session, *, id: int | None = None) -> tuple[EnvironmentRecord, ...]:
    """Environments, oldest first."""
    query = select(EnvironmentRow).order_by(EnvironmentRow.id)
    if id is not None:
        query = query.where(EnvironmentRow.id == id)
    return tuple(
        EnvironmentRecord(row.id, row.fingerprint, row.host, row.details, row.recorded_at)
        for row in session.scalars(query)
    )


def configurations(session: Session, *, id: int | None = None) -> tuple[ConfigurationRecord, ...]:
    """Configurations, oldest first."""
    query = select(ConfigurationRow).order_by(ConfigurationRow.id)
    if id is not None:
        query = query.where(ConfigurationRow.id == id)
    return tuple(
        ConfigurationRecord(row.id, row.identity, row.resolved_identity, configuration_of(row.asked), row.resolved)
        for row in session.scalars(query)
    )


def searches(session: Session, *, study: str | None = None) -> tuple[SearchRecord, ...]:
    """Searches, oldest first."""
    query = select(SearchRow, ConfigurationRow.asked).outerjoin(
        ConfigurationRow, SearchRow.baseline_configuration_id == ConfigurationRow.id
    )
    if study is not None:
        query = query.where(SearchRow.study_name == study)
    return tuple(
        SearchRecord(
            row.id,
            row.study_name,
            row.space,
            row.space_yaml,
            row.model,
            None if asked is None else configuration_of(asked),
            row.plan,
            row.created_at,
            row.rehearsal,
        )
        for row, asked in session.execute(query.order_by(SearchRow.id))
    )


def launches(
    session: Session,
    study: str | None = None,
    *,
    id: int | None = None,
    trial_number: int | None = None,
    purpose: str | None = None,
    outcomes: Sequence[str] | None = None,
    host: str | None = None,
    identity: str | None = None,
    resolved_identity: str | None = None,
) -> tuple[LaunchRecord, ...]:
    """Launches, oldest first; every argument given narrows them."""
    query = select(LaunchRow, ConfigurationRow).join(
        ConfigurationRow, LaunchRow.configuration_id == ConfigurationRow.id
    )
    for column, wanted in (
        (LaunchRow.study_name, study),
        (LaunchRow.id, id),
        (LaunchRow.trial_number, trial_number),
        (LaunchRow.purpose, purpose),
        (LaunchRow.host, host),
        (ConfigurationRow.identity, identity),
        (ConfigurationRow.resolved_identity, resolved_identity),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    if outcomes is not None:
        query = query.where(LaunchRow.outcome.in_(outcomes))
    return tuple(_launch(row, asked) for row, asked in session.execute(query.order_by(LaunchRow.id)))


def _launch(row: LaunchRow, asked: ConfigurationRow) -> LaunchRecord:
    failure = None
    if row.failure_cause is not None:
        failure = Failure(
            row.failure_rank,
            row.failure_phase or "",
            row.failure_cause,
            row.failure_blame or "unknown",  # type: ignore[arg-type]
            row.failure_remedy or "",
            row.failure_evidence or "",
        )
    return LaunchRecord(
        id=row.id,
        study_name=row.study_name,
        trial_number=row.trial_number,
        purpose=row.purpose,
        configuration_id=row.configuration_id,
        configuration=configuration_of(asked.asked),
        resolved=asked.resolved,
        resolved_identity=asked.resolved_identity,
        environment_id=row.environment_id,
        host=row.host,
        owner_pid=row.owner_pid,
        pid=row.pid,
        command=tuple(row.command),
        log_path=Path(row.log_path) if row.log_path else None,
        started_at=row.started_at,
        ready_at=row.ready_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        failure=failure,
        server_info=row.server_info,
        teardown=row.teardown,
        rehearsal=row.rehearsal,
    )


def phases(session: Session, *, launch_id: int | None = None, study: str | None = None) -> tuple[PhaseRecord, ...]:
    """Phases of one launch or of every launch of a study, as they were recorded."""
    query = select(PhaseRow)
    if launch_id is not None:
        query = query.where(PhaseRow.launch_id == launch_id)
    if study is not None:
        query = query.join(LaunchRow, PhaseRow.launch_id == LaunchRow.id).where(LaunchRow.study_name == study)
    names = [field.name for field in fields(Phase)]
    return tuple(
        PhaseRecord(row.launch_id, Phase(**{name: getattr(row, name) for name in names}))
        for row in session.scalars(query.order_by(PhaseRow.launch_id, PhaseRow.id))
    )


def measurements(
    session: Session, study: str | None = None, *, launch_id: int | None = None, level: str | None = None
) -> tuple[MeasurementRecord, ...]:
    """Measurements of a study or of one launch, oldest first, without their samples."""
    query: Select[Any] = (
        select(
            MeasurementRow.id,
            MeasurementRow.launch_id,
            LaunchRow.study_name,
            LaunchRow.trial_number,
            LaunchRow.purpose,
            LaunchRow.configuration_id,
            MeasurementRow.repeat,
            MeasurementDetailRow.detail,
        )
        .join(LaunchRow, MeasurementRow.launch_id == LaunchRow.id)
        .join(MeasurementDetailRow, MeasurementDetailRow.measurement_id == MeasurementRow.id)
    )
    if study is not None:
        query = query.where(LaunchRow.study_name == study)
    if launch_id is not None:
        query = query.where(MeasurementRow.launch_id == launch_id)
    if level is not None:
        query = query.where(MeasurementRow.level == level)
    read = ((row, _measurement(row.detail)) for row in session.execute(query.order_by(MeasurementRow.id)))
    return tuple(
        MeasurementRecord(
            row.id,
            row.launch_id,
            row.study_name,
            row.trial_number,
            row.purpose,
            row.configuration_id,
            row.repeat,
            measurement,
        )
        for row, measurement in read
        if measurement is not None  # a damaged row is left out rather than ending the search
    )


def _measurement(detail: Any) -> Measurement | None:
    try:
        values = {field.name: detail[field.name] for field in fields(Measurement) if field.name in detail}
        values["level"] = Level(**values["level"])
        for name in _DISTRIBUTIONS:
            values[name] = None if values.get(name) is None else Distribution(**values[name])
        values["notes"] = tuple(values.get("notes") or ())
        return Measurement(**values)
    except (TypeError, KeyError):
        return None


def samples(session: Session, measurement_id: int) -> tuple[Any, ...]:
    """The samples of one measurement, as they were measured."""
    packed = session.scalar(
        select(MeasurementDetailRow.samples).where(MeasurementDetailRow.measurement_id == measurement_id)
    )
    if packed is None:
        raise StorageError(f"There is no measurement {measurement_id}: take its id from Store.measurements.")
    return unpack(packed)


def best_measurements(
    session: Session, study: str, *, trials: Sequence[int] | None = None, purpose: str | None = None
) -> tuple[LevelResult, ...]:
    """Every configuration of a study at every level, its repeats averaged by the database."""
    m, launch = MeasurementRow, LaunchRow
    query = (
        select(
            launch.purpose,
            launch.trial_number,
            launch.configuration_id,
            launch.host,
            m.level,
            func.count(),
            func.avg(m.output_throughput),
            func.min(m.output_throughput),
            func.max(m.output_throughput),
            func.avg(m.ttft_ms_p50),
            func.avg(m.tpot_ms_p50),
            func.avg(m.itl_ms_p99),
            func.avg(m.latency_ms_p99),
            func.avg(m.acceptance_length),
            func.avg(m.pcie_bytes_per_token),
            func.sum(m.failed),
        )
        .join(launch, m.launch_id == launch.id)
        .where(launch.study_name == study, m.output_throughput.is_not(None))
        .group_by(launch.purpose, launch.trial_number, launch.configuration_id, launch.host, m.level)
    )
    if trials is not None:
        query = query.where(launch.trial_number.in_(trials))
    if purpose is not None:
        query = query.where(launch.purpose == purpose)
    return tuple(map(LevelResult._make, session.execute(query)))


def artifacts(
    session: Session, *, study: str | None = None, launch_id: int | None = None, kind: str | None = None
) -> tuple[ArtifactRecord, ...]:
    """Artifacts, oldest first."""
    query = select(ArtifactRow).order_by(ArtifactRow.id)
    for column, wanted in (
        (ArtifactRow.study_name, study),
        (ArtifactRow.launch_id, launch_id),
        (ArtifactRow.kind, kind),
    ):
        if wanted is not None:
            query = query.where(column == wanted)
    return tuple(
        ArtifactRecord(
            row.id,
            row.study_name,
            row.launch_id,
            row.kind,
            row.filename,
            Path(row.path),
            row.sha256,
            row.size_bytes,
            row.recorded_at,
        )
        for row in session.scalars(query)
    )
