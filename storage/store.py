"""The store: every step of a search, written as it happens."""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from benchmark.results import Measurement, RequestSample
from engine.configuration import Configuration
from engine.failure import Failure
from engine.phase import Phase
from storage.artifacts import keep
from storage.errors import StorageError
from storage.figures import measurement_columns
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
from storage.owner import Owner, this_host, this_process
from storage.reading import configuration_of
from storage.recall import Recall
from storage.records import (
    OUTCOMES,
    PURPOSES,
    UNFINISHED,
    ArtifactRecord,
    LaunchRecord,
    Outcome,
    Purpose,
)
from storage.samples import pack


class Store(Recall):
    """One database, open. Each write is one short transaction, tried again for `patience_s` seconds while the database
    is busy or away, and never doubled by that; each read comes back whole. Nothing secret is ever written.

    Raises StorageError, one sentence, from every method.
    """

    def record_environment(self, details: Mapping[str, Any]) -> int:
        """The id of this hardware and these versions; what was recorded before is found again."""
        kept = self.redactor.values(details)
        fingerprint = hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()

        def work(session: Session, _tries: int) -> int:
            found = session.scalar(select(EnvironmentRow.id).where(EnvironmentRow.fingerprint == fingerprint))
            if found is not None:
                return found
            row = EnvironmentRow(fingerprint=fingerprint, host=this_host(), details=kept, recorded_at=time.time())
            return self._added(session, row)

        return self._write(work, "record the environment")

    def record_configuration(
        self,
        configuration: Configuration,
        resolved: Mapping[str, Any] | None = None,
        resolved_identity: str | None = None,
    ) -> int:
        """The id of a configuration as asked and as resolved."""
        self.redactor.learn(configuration.flags, configuration.environment, resolved or {})
        stored = self.stored_configuration(configuration)
        kept = None if resolved is None else self.redactor.values(resolved)

        def work(session: Session, _tries: int) -> int:
            return self._configuration(session, stored, kept, resolved_identity)

        return self._write(work, "record a configuration")

    def stored_configuration(self, configuration: Configuration) -> Configuration:
        """The configuration as it is kept: without secrets. Its identity is the one that records carry."""
        self.redactor.learn(configuration.flags, configuration.environment)
        return configuration_of(self.redactor.values(configuration.as_dict()))

    def record_search(
        self,
        study: str,
        *,
        space: str,
        space_yaml: str,
        model: str,
        baseline: Configuration | None = None,
        plan: Mapping[str, Any] | None = None,
        rehearsal: bool = False,
    ) -> int:
        """The id of a search. A search that is continued keeps its first time and takes the newest space and plan."""
        stored = None if baseline is None else self.stored_configuration(baseline)
        values = {
            "space": space,
            "space_yaml": self.redactor.text(space_yaml),
            "model": self.redactor.text(model),
            "plan": self.redactor.values(plan or {}),
            "rehearsal": rehearsal,
        }

        def work(session: Session, _tries: int) -> int:
            if stored is not None:
                values["baseline_configuration_id"] = self._configuration(session, stored, None, None)
            row = session.scalar(select(SearchRow).where(SearchRow.study_name == study))
            if row is None:
                return self._added(session, SearchRow(study_name=study, created_at=time.time(), **values))
            for name, value in values.items():
                setattr(row, name, value)
            return row.id

        return self._write(work, f"record the search {study!r}")

    def begin_launch(
        self,
        study: str,
        trial_number: int | None,
        purpose: Purpose,
        configuration: Configuration,
        *,
        resolved: Mapping[str, Any] | None = None,
        environment_id: int | None = None,
        command: Sequence[str] = (),
        log_path: Path | str | None = None,
        rehearsal: bool = False,
        resolved_identity: str | None = None,
        pid: int | None = None,
        outcome: Outcome = "running",
        started_at: float | None = None,
    ) -> int:
        """The id of a launch that begins now, owned by this process until `end_launch`."""
        _one_of(purpose, PURPOSES, "purpose")
        _one_of(outcome, OUTCOMES, "outcome")
        self.redactor.learn(configuration.flags, configuration.environment, resolved or {})
        self.redactor.learn_command(command)
        stored = self.stored_configuration(configuration)
        kept = None if resolved is None else self.redactor.values(resolved)
        owner, uid, now = this_process(), uuid.uuid4().hex, time.time() if started_at is None else started_at
        words = self.redactor.command(command)
        log = None if log_path is None else self.redactor.text(str(log_path))

        def work(session: Session, tries: int) -> int:
            if tries and (found := session.scalar(select(LaunchRow.id).where(LaunchRow.uid == uid))):
                return found
            return self._added(
                session,
                LaunchRow(
                    uid=uid,
                    study_name=study,
                    trial_number=trial_number,
                    purpose=purpose,
                    configuration_id=self._configuration(session, stored, kept, resolved_identity),
                    environment_id=environment_id,
                    host=owner.host,
                    owner_pid=owner.pid,
                    owner_incarnation=owner.incarnation,
                    pid=pid,
                    command=words,
                    log_path=log,
                    started_at=now,
                    ended_at=None if outcome in UNFINISHED else now,
                    outcome=outcome,
                    rehearsal=rehearsal,
                ),
            )

        return self._write(work, f"record a launch of {study!r}")

    def record_process(self, launch_id: int, pid: int, command: Sequence[str] | None = None) -> None:
        """The engine's process, and its whole command line where it was not known before."""
        values: dict[str, Any] = {"pid": pid}
        if command is not None:
            self.redactor.learn_command(command)
            values["command"] = self.redactor.command(command)
        self._update_launch(launch_id, "record the process", values)

    def record_phases(self, launch_id: int, phases: Sequence[Phase]) -> None:
        """What is known of each phase by now; what was known before of the same phases is replaced."""

        def work(session: Session, _tries: int) -> None:
            for row in session.scalars(select(PhaseRow).where(PhaseRow.launch_id == launch_id)):
                found = newest.pop((row.rank, row.name), None)
                if found is not None:
                    for name in ("started_at", "elapsed_s", "memory_used_gb", "memory_left_gb", "progress", "done"):
                        setattr(row, name, getattr(found, name))
            session.add_all(
                PhaseRow(launch_id=launch_id, **{name: getattr(phase, name) for name in Phase.__dataclass_fields__})
                for phase in newest.values()
            )

        newest: dict[tuple[str, str], Phase] = {}

        def anew(session: Session, tries: int) -> None:
            newest.clear()
            newest.update({(phase.rank, phase.name): phase for phase in phases})
            work(session, tries)

        self._write(anew, f"record the phases of launch {launch_id}")

    def record_ready(self, launch_id: int, ready_at: float | None = None) -> None:
        """The engine serves."""
        values = {"ready_at": time.time() if ready_at is None else ready_at, "outcome": "ready"}
        self._update_launch(launch_id, "record readiness", values)

    def record_server_info(self, launch_id: int, server_info: Mapping[str, Any]) -> None:
        """What really runs, in the engine's own words."""
        self.redactor.learn(server_info)
        self._update_launch(
            launch_id, "record the server's information", {"server_info": self.redactor.values(server_info)}
        )

    def record_teardown(self, launch_id: int, teardown: Any) -> None:
        """How the engine ended: a dataclass or a mapping."""
        self._update_launch(launch_id, "record the teardown", {"teardown": self.redactor.values(teardown)})

    def end_launch(
        self, launch_id: int, outcome: Outcome, failure: Failure | None = None, ended_at: float | None = None
    ) -> None:
        """The launch has ended so."""
        _one_of(outcome, OUTCOMES, "outcome")
        values: dict[str, Any] = {"outcome": outcome, "ended_at": time.time() if ended_at is None else ended_at}
        if failure is not None:
            values |= {
                f"failure_{name}": None
                if told is None
                else self.redactor.text(told)[: 64 if name in ("rank", "phase") else None]
                for name, told in failure.as_dict().items()
            }
        self._update_launch(launch_id, "record the end", values)

    def record_measurement(self, launch_id: int, measurement: Measurement, repeat: int = 0) -> int:
        """The id of a measurement, recorded with all its samples."""
        uid = uuid.uuid4().hex
        samples = pack([self._sample(sample) for sample in measurement.samples])
        detail = self.redactor.values(measurement.as_dict())
        figures = measurement_columns(measurement)

        def work(session: Session, tries: int) -> int:
            if tries and (found := session.scalar(select(MeasurementRow.id).where(MeasurementRow.uid == uid))):
                return found
            id = self._added(session, MeasurementRow(uid=uid, launch_id=launch_id, repeat=repeat, **figures))
            session.add(
                MeasurementDetailRow(
                    measurement_id=id, detail=detail, sample_count=len(measurement.samples), samples=samples
                )
            )
            return id

        return self._write(work, f"record a measurement of launch {launch_id}")

    def record_artifact(
        self, path: Path | str, kind: str, *, study: str | None = None, launch_id: int | None = None
    ) -> ArtifactRecord:
        """Copy a file into the artifact folder (texts without their secrets) and record where it is."""
        source = Path(path)
        kept = keep(source, self.folder, self.redactor)
        uid, now = uuid.uuid4().hex, time.time()

        def work(session: Session, tries: int) -> int:
            if tries and (found := session.scalar(select(ArtifactRow.id).where(ArtifactRow.uid == uid))):
                return found
            return self._added(
                session,
                ArtifactRow(
                    uid=uid,
                    study_name=study,
                    launch_id=launch_id,
                    kind=kind,
                    filename=source.name,
                    path=str(kept.path),
                    sha256=kept.sha256,
                    size_bytes=kept.size_bytes,
                    recorded_at=now,
                ),
            )

        id = self._write(work, f"record the artifact {source.name}")
        return ArtifactRecord(id, study, launch_id, kind, source.name, kept.path, kept.sha256, kept.size_bytes, now)

    def sweep_unfinished(self, host: str | None = None) -> tuple[LaunchRecord, ...]:
        """Mark what dead processes of this host left unfinished as lost, and return it.

        `host` given by name asserts that nothing of ours runs there any more, so that all it left is lost; without it
        only this host's launches are looked at, and only those whose process is gone are lost.
        """
        elsewhere = host is not None and host != this_host()

        def work(session: Session, _tries: int) -> tuple[int, ...]:
            lost = []
            query = select(LaunchRow).where(LaunchRow.outcome.in_(UNFINISHED), LaunchRow.host == (host or this_host()))
            for row in session.scalars(query):
                if elsewhere or Owner(row.host, row.owner_pid, row.owner_incarnation).is_dead():
                    row.outcome, row.ended_at = "lost", time.time()
                    lost.append(row.id)
            return tuple(lost)

        ids = self._write(work, "sweep unfinished launches")
        return tuple(self.launch(id) for id in ids)

    def _update_launch(self, launch_id: int, what: str, values: dict[str, Any]) -> None:
        def work(session: Session, _tries: int) -> None:
            changed = session.execute(update(LaunchRow).where(LaunchRow.id == launch_id).values(**values))
            if changed.rowcount != 1:  # type: ignore[attr-defined]
                raise StorageError(f"There is no launch {launch_id} in {self.url}: begin_launch gives the id.")

        self._write(work, f"{what} of launch {launch_id}")

    def _configuration(
        self, session: Session, stored: Configuration, resolved: dict[str, Any] | None, resolved_identity: str | None
    ) -> int:
        if resolved is not None and not resolved_identity:
            resolved_identity = hashlib.sha256(json.dumps(resolved, sort_keys=True).encode()).hexdigest()[:16]
        key = {"identity": stored.identity(), "resolved_identity": resolved_identity or ""}
        found = session.scalar(select(ConfigurationRow.id).filter_by(**key))
        if found is not None:
            return found
        return self._added(session, ConfigurationRow(asked=stored.as_dict(), resolved=resolved, **key))

    def _sample(self, sample: RequestSample) -> RequestSample:
        if sample.error is None:
            return sample
        return RequestSample(**{**vars(sample), "error": self.redactor.text(sample.error)})

    @staticmethod
    def _added(session: Session, row: Any) -> int:
        session.add(row)
        session.flush()
        return int(row.id)


def _one_of(given: str, known: tuple[str, ...], what: str) -> None:
    if given not in known:
        raise StorageError(f"A launch has no {what} {given!r}: choose one of {', '.join(known)}.")
