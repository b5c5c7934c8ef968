"""From a URL to a connected SQLAlchemy engine, set up for long searches, or one sentence that says why not."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from storage.durable import first_line
from storage.errors import StorageError

BUSY_TIMEOUT_S = 60
_CONNECT_TIMEOUT_S = 10
_POSTGRES = {"postgres", "postgresql", "postgresql+psycopg"}


def database_url(url: str) -> URL:
    """The URL as SQLAlchemy wants it: a bare path is an SQLite file, ``postgresql://`` goes through psycopg 3."""
    if "://" not in url:
        url = f"sqlite:///{url}"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as broken:
        scheme = url.split("://", maxsplit=1)[0]
        raise StorageError(
            f"The storage URL that begins with {scheme!r} cannot be read: "
            "write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE."
        ) from broken
    if parsed.drivername in _POSTGRES:
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise StorageError("The storage URL names no file, and memory forgets: write sqlite:///FILE.")
        return parsed.set(database=str(Path(str(parsed.database)).expanduser().absolute()))
    return parsed


def shown(url: URL) -> str:
    """The URL for people: without its password."""
    return url.render_as_string(hide_password=True)


def plain(url: URL) -> str:
    """The URL for other libraries: with its password."""
    return url.render_as_string(hide_password=False)


def connect_arguments(url: URL) -> dict[str, Any]:
    """What a connection needs beside its URL: patience on SQLite, an end of patience on PostgreSQL."""
    if url.get_backend_name() == "sqlite":
        return {"timeout": BUSY_TIMEOUT_S}
    if url.drivername == "postgresql+psycopg":
        return {"connect_timeout": _CONNECT_TIMEOUT_S, "application_name": "quietlane"}
    return {}


def tune_sqlite(connection: sqlite3.Connection, _record: object = None) -> None:
    """WAL, so that a dashboard can read while a search writes; NORMAL is safe against a crash of any process."""
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_ourselves(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    # A reader that becomes a writer halfway is refused at once, however long its timeout: a writer says so first.
    connection.exec_driver_sql("BEGIN" if connection.get_execution_options().get("only_reads") else "BEGIN IMMEDIATE")


def open_engine(url: URL) -> Engine:
    """An engine whose first connection has worked. Raises StorageError with one sentence."""
    sqlite = url.get_backend_name() == "sqlite"
    target = url
    if sqlite:
        path = _existing_file(Path(str(url.database)))
        # mode=rw: a file that is taken away is missed, and not silently begun anew
        target = url.set(database=f"file:{quote(str(path))}").update_query_dict({"mode": "rw", "uri": "true"})
    try:
        engine = create_engine(target, connect_args=connect_arguments(url))
    except NoSuchModuleError as unknown:
        raise StorageError(
            f"No database driver {url.drivername!r} is known: write sqlite:///FILE or postgresql://USER@HOST/DATABASE."
        ) from unknown
    except ImportError as missing:
        raise StorageError(
            f"The Python package {missing.name!r} for {url.drivername!r} is not installed: "
            "for PostgreSQL, pip install 'quietlane[postgres]'."
        ) from missing
    if sqlite:
        event.listen(engine, "connect", tune_sqlite)
        event.listen(engine, "connect", _begin_ourselves)
        event.listen(engine, "begin", _begin)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT 1"))
    except DBAPIError as refused:
        engine.dispose()
        raise StorageError(_refusal(url, refused)) from None
    return engine


def _existing_file(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as refused:
        raise StorageError(
            f"The database file {path} cannot be written ({refused.strerror}): name another one with --storage."
        ) from refused
    return path


def _refusal(url: URL, error: DBAPIError) -> str:
    said = first_line(error)
    if "password authentication failed" in said or "no password supplied" in said:
        return f"The database {shown(url)} refuses the password of {url.username!r}: mend the storage URL or ~/.pgpass."
    if "does not exist" in said and "database" in said:
        return (
            f"There is no database {url.database!r} at {url.host}: create it (createdb {url.database}) or mend the URL."
        )
    if "not a database" in said:
        return f"The file {url.database} is not an SQLite database: name another one with --storage."
    if "readonly" in said:
        return (
            f"The database file {url.database} is read-only: mend its permissions or name another one with --storage."
        )
    if url.get_backend_name() == "sqlite":
        return f"The database file {url.database} cannot be opened ({said}): name another one with --storage."
    return f"The database {shown(url)} cannot be reached ({said}): see that it is up and that the URL is right."
