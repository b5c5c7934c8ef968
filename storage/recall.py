"""What can be asked of a store: each question one short transaction, each answer whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from benchmark.results import RequestSample
from storage import reading
from storage.connection import Connection
from storage.errors import StorageError
from storage.records import (
    ArtifactRecord,
    ConfigurationRecord,
    EnvironmentRecord,
    LaunchRecord,
    LevelResult,
    MeasurementRecord,
    PhaseRecord,
    Purpose,
    SearchRecord,
)

T = TypeVar("T")


class Recall(Connection):
    """The reading half of `Store`."""

    def environments(self) -> tuple[EnvironmentRecord, ...]:
        """Every environment."""
        return self._read(reading.environments)

    def environment(self, id: int) -> EnvironmentRecord:
        """One environment."""
        return _only(self._read(lambda session: reading.environments(session, id=id)), "environment", id)

    def configurations(self) -> tuple[ConfigurationRecord, ...]:
        """Every configuration."""
        return self._read(reading.configurations)

    def configuration(self, id: int) -> ConfigurationRecord:
        """One configuration."""
        return _only(self._read(lambda session: reading.configurations(session, id=id)), "configuration", id)

    def searches(self) -> tuple[SearchRecord, ...]:
        """Every search."""
        return self._read(reading.searches)

    def search(self, study: str) -> SearchRecord:
        """One search."""
        return _only(self._read(lambda session: reading.searches(session, study=study)), "search", study)

    def launches(self, study: str | None = None, **narrowed: Any) -> tuple[LaunchRecord, ...]:
        """Launches, oldest first, narrowed as `storage.reading.launches` says."""
        return self._read(lambda session: reading.launches(session, study, **narrowed))

    def launch(self, id: int) -> LaunchRecord:
        """One launch."""
        return _only(self._read(lambda session: reading.launches(session, id=id)), "launch", id)

    def phases(self, launch_id: int | None = None, study: str | None = None) -> tuple[PhaseRecord, ...]:
        """Phases of a launch, or of every launch of a study."""
        return self._read(lambda session: reading.phases(session, launch_id=launch_id, study=study))

    def measurements(
        self, study: str | None = None, *, launch_id: int | None = None, level: str | None = None
    ) -> tuple[MeasurementRecord, ...]:
        """Measurements of a study or a launch, oldest first, without samples."""
        return self._read(lambda session: reading.measurements(session, study, launch_id=launch_id, level=level))

    def samples(self, measurement_id: int) -> tuple[RequestSample, ...]:
        """The samples of one measurement, exactly as they were recorded."""
        return self._read(lambda session: reading.samples(session, measurement_id))

    def best_measurements(
        self, study: str, *, trials: Sequence[int] | None = None, purpose: Purpose | None = None
    ) -> tuple[LevelResult, ...]:
        """Every configuration at every level, its repeats averaged by the database."""
        return self._read(lambda session: reading.best_measurements(session, study, trials=trials, purpose=purpose))

    def artifacts(
        self, study: str | None = None, *, launch_id: int | None = None, kind: str | None = None
    ) -> tuple[ArtifactRecord, ...]:
        """Artifacts, oldest first."""
        return self._read(lambda session: reading.artifacts(session, study=study, launch_id=launch_id, kind=kind))


def _only(found: tuple[T, ...], kind: str, key: object) -> T:
    if not found:
        raise StorageError(f"There is no {kind} {key!r} in this database: see that --storage names the right one.")
    return found[0]
