"""Whether a database and its artifacts are whole: each finding one sentence with its remedy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import DatabaseError

from storage import migrations
from storage.database import database_url, open_engine, shown
from storage.durable import first_line
from storage.errors import StorageError
from storage.models import ArtifactRow, Base, LaunchRow, MeasurementDetailRow, MeasurementRow
from storage.owner import Owner, this_host
from storage.records import UNFINISHED
from storage.samples import unpack


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `severity` says whether anything is lost (error) or only worth knowing."""

    severity: Literal["good", "note", "error"]
    sentence: str


def check(url: str) -> tuple[Finding, ...]:
    """Look at the schema, the rows, the samples and the artifact files. Changes nothing. Raises StorageError."""
    target = database_url(url)
    if target.get_backend_name() == "sqlite" and not Path(str(target.database)).is_file():
        raise StorageError(f"There is no database {target.database}: mend the storage URL.")
    engine = open_engine(target)
    try:
        with engine.execution_options(only_reads=True).begin() as connection:
            at = migrations.current(connection)
            if at != migrations.head():
                told = "has no tables of ours" if at is None else f"is at schema {at}, and not at {migrations.head()}"
                return (Finding("error", f"{shown(target)} {told}: run `quietlane storage migrate`."),)
            findings = [
                Finding("good", f"{shown(target)} is at schema {at}."),
                *_engine_says(connection),
                *_rows(connection),
                *_samples(connection),
                *_files(connection),
                *_unfinished(connection),
            ]
    except DatabaseError as broken:
        return (Finding("error", f"{shown(target)} cannot be read ({first_line(broken)}): restore it from a backup."),)
    finally:
        engine.dispose()
    return tuple(findings)


def _engine_says(connection: Connection) -> Iterator[Finding]:
    if connection.dialect.name != "sqlite":
        return
    said = [str(row[0]) for row in connection.execute(text("PRAGMA integrity_check(5)"))]
    if said != ["ok"]:
        yield Finding("error", f"SQLite finds damage ({'; '.join(said)}): restore the file from a backup.")
    for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield Finding("error", f"Row {row} of {table!r} points at a row of {parent!r} that is not there: delete it.")


def _rows(connection: Connection) -> Iterator[Finding]:
    for table in Base.metadata.sorted_tables:
        documents = [column for column in table.c if column.type.__class__.__name__ == "Document"]
        if not documents:
            continue
        (key,) = table.primary_key
        count = 0
        for row in connection.execute(select(key, *documents)):
            count += 1
            for column, value in zip(documents, row[1:], strict=True):
                if isinstance(value, dict) and set(value) == {"unreadable"}:
                    yield Finding(
                        "error", f"{table.name}.{column.name} of row {row[0]} is no JSON: it is read as empty."
                    )
        yield Finding("good", f"{count} rows in {table.name}.")


def _samples(connection: Connection) -> Iterator[Finding]:
    m, d = MeasurementRow.__table__, MeasurementDetailRow.__table__
    query = select(m.c.id, d.c.sample_count, d.c.samples).outerjoin(d, d.c.measurement_id == m.c.id)
    for id, count, packed in connection.execute(query.execution_options(yield_per=500)):
        if packed is None:
            yield Finding("error", f"Measurement {id} has no details: measure it again.")
            continue
        try:
            found = len(unpack(packed))
        except StorageError:
            found = -1
        if found != count:
            yield Finding("error", f"The {count} samples of measurement {id} cannot be read: measure it again.")


def _files(connection: Connection) -> Iterator[Finding]:
    a = ArtifactRow.__table__
    for id, path, digest in connection.execute(select(a.c.id, a.c.path, a.c.sha256)):
        file = Path(path)
        if not file.is_file():
            yield Finding("error", f"The file {path} of artifact {id} is not there: copy the artifact folder here too.")
        elif hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            yield Finding(
                "error", f"The file {path} of artifact {id} is not what was recorded: restore it from a backup."
            )


def _unfinished(connection: Connection) -> Iterator[Finding]:
    t = LaunchRow.__table__
    query = select(t.c.id, t.c.host, t.c.owner_pid, t.c.owner_incarnation).where(t.c.outcome.in_(UNFINISHED))
    for id, host, pid, incarnation in connection.execute(query):
        if host == this_host() and Owner(host, pid, incarnation).is_dead():
            yield Finding("note", f"Launch {id} was left unfinished by a dead process: the next search marks it lost.")
        elif host != this_host():
            yield Finding("note", f"Launch {id} is unfinished on {host}.")
