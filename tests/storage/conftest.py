"""The databases that the suite runs on: an SQLite file for each test, and one real PostgreSQL for the session."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_postgres_server import Postgres, missing, running_postgres

from storage import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A running server, or a skip on a machine that has none."""
    if reason := missing():
        pytest.skip(reason)
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with Optuna's tables and ours and no rows, made once."""
    file = tmp_path_factory.mktemp("template") / "study.db"
    _make_tables(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="session")
def postgres_template(postgres: Postgres) -> str:
    """The name of such a database in the server."""
    url = postgres.new_database()
    _make_tables(url)
    return url.rpartition("/")[2]


def _make_tables(url: str) -> None:
    with Store.open(url) as store:
        storage = store.optuna_storage()
        storage.remove_session()
        storage.engine.dispose()


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """The URL of an SQLite database with tables and no rows."""
    shutil.copy(sqlite_template, tmp_path / "study.db")
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a database with tables and no rows, of each kind in turn."""
    monkeypatch.setenv("QUIETLANE_ARTIFACTS", str(tmp_path / "artifacts"))
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    server = request.getfixturevalue("postgres")
    return str(server.new_database(request.getfixturevalue("postgres_template")))


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without any table, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/new.db"
    return str(request.getfixturevalue("postgres").new_database())
