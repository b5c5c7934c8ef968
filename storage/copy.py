"""A whole study from one database to another (SQLite, PostgreSQL), with nothing lost: Optuna's tables and ours.

The source is read in one transaction, so that a search may go on meanwhile; the target is written in one transaction,
so that it has everything or nothing, and is compared with the source before it is committed. Artifacts are files and
stay where they are; copy their folder yourself if the other host does not see it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from optuna.storages._rdb import models as optuna_models
from sqlalchemy import Connection, Table, func, insert, select, text
from sqlalchemy.exc import DBAPIError

from storage.database import database_url, open_engine, plain, shown
from storage.durable import first_line
from storage.errors import StorageError
from storage.models import Base
from storage.store import Store

_ROWS_AT_A_TIME = 1000
# Optuna writes its own row about its version into every database it opens.
_OPTUNA_ABOUT_ITSELF = "version_info"


@dataclass(frozen=True)
class Copied:
    """How many rows of each table were copied."""

    rows: dict[str, int]

    @property
    def total(self) -> int:
        """Rows of all tables."""
        return sum(self.rows.values())


def tables() -> tuple[Table, ...]:
    """Optuna's tables and ours, those that are pointed at first."""
    ours, optunas = Base.metadata.sorted_tables, optuna_models.BaseModel.metadata.sorted_tables
    return tuple(table for table in (*optunas, *ours) if table.name != _OPTUNA_ABOUT_ITSELF)


def copy_storage(source_url: str, target_url: str, progress: Callable[[str, int], None] | None = None) -> Copied:
    """Copy everything into an empty database; `progress` is told each table and its rows. Raises StorageError."""
    source, target = database_url(source_url), database_url(target_url)
    if source == target:
        raise StorageError(f"Source and target are the same database {shown(source)}: name another target.")
    if source.get_backend_name() == "sqlite":
        _must_exist(str(source.database))
    for url in (source, target):
        with Store.open(plain(url)) as store:  # both at this version of the tables
            store.optuna_storage().engine.dispose()
    reader, writer = open_engine(source), open_engine(target)
    moment = {} if source.get_backend_name() == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    try:
        with (
            reader.execution_options(only_reads=True, **moment).connect() as reading,
            writer.begin() as writing,
        ):
            _must_be_empty(writing, shown(target))
            rows = {}
            for table in tables():
                rows[table.name] = _copy_table(reading, writing, table)
                if progress:
                    progress(table.name, rows[table.name])
            return Copied(rows)
    except DBAPIError as refused:
        raise StorageError(
            f"The copy from {shown(source)} to {shown(target)} stopped ({first_line(refused)}): "
            "nothing was written; mend that and copy again."
        ) from refused
    finally:
        reader.dispose()
        writer.dispose()


def _must_exist(path: str) -> None:
    if not Path(path).is_file():
        raise StorageError(f"There is no database {path} to copy from: mend the source URL.")


def _must_be_empty(connection: Connection, where: str) -> None:
    for table in tables():
        if connection.scalar(select(func.count()).select_from(table)):
            raise StorageError(f"The target {where} already has rows in {table.name!r}: copy into an empty database.")


def _copy_table(source: Connection, target: Connection, table: Table) -> int:
    copied = 0
    sent = hashlib.sha256()
    for batch in _batches(source, table):
        target.execute(insert(table), [dict(row) for row in batch])
        copied += len(batch)
        sent.update(_told(batch))
    arrived = hashlib.sha256()
    for batch in _batches(target, table):
        arrived.update(_told(batch))
    if sent.digest() != arrived.digest():
        raise StorageError(f"The rows of {table.name!r} arrived changed: nothing was written; report this as a bug.")
    if target.dialect.name == "postgresql":
        _advance_sequence(target, table)
    return copied


def _batches(connection: Connection, table: Table) -> Iterator[list[dict[str, object]]]:
    query = select(table).order_by(*table.primary_key).execution_options(yield_per=_ROWS_AT_A_TIME)
    with connection.execute(query) as result:
        for partition in result.mappings().partitions():
            yield [dict(row) for row in partition]


def _told(rows: list[dict[str, object]]) -> bytes:
    return "".join(repr(sorted(row.items())) for row in rows).encode("utf-8", "backslashreplace")


def _advance_sequence(connection: Connection, table: Table) -> None:
    """The next row must not take the number of a copied one."""
    (key,) = table.primary_key
    sequence = connection.scalar(text("SELECT pg_get_serial_sequence(:t, :c)"), {"t": f'"{table.name}"', "c": key.name})
    highest = connection.scalar(select(func.max(key)))
    if sequence and highest is not None:
        connection.execute(text("SELECT setval(:sequence, :highest)"), {"sequence": sequence, "highest": highest})
