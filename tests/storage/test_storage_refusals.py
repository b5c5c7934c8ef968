"""A database that cannot be used is refused in one sentence, and never with its password."""

from __future__ import annotations

from pathlib import Path

import pytest
from storage_postgres_server import PASSWORD, Postgres

from storage import StorageError, Store


def refusal(url: str) -> str:
    with pytest.raises(StorageError) as refused:
        Store.open(url)
    said = str(refused.value)
    assert "\n" not in said
    assert PASSWORD not in said
    return said


def test_a_path_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be written" in refusal(f"sqlite:///{tmp_path}/file/study.db")


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    assert str(tmp_path) in refusal(f"sqlite:///{tmp_path}")


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are my notes, and no database at all" * 100)
    assert "not an SQLite database" in refusal(f"sqlite:///{tmp_path}/notes.txt")
    assert (tmp_path / "notes.txt").read_text().startswith("these are my notes")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_memory_is_no_storage(url: str) -> None:
    assert "memory forgets" in refusal(url)


def test_an_unknown_driver_is_named() -> None:
    assert "'nosuchdb'" in refusal(f"nosuchdb://user:{PASSWORD}@host/db")


def test_a_driver_that_is_not_installed_is_named() -> None:
    assert "not installed" in refusal(f"mysql+pymysql://user:{PASSWORD}@host/db")


def test_a_url_that_cannot_be_read_is_refused_without_being_repeated() -> None:
    assert "cannot be read" in refusal(f"postgresql://user:{PASSWORD}@host:port/db")


def test_a_server_that_is_not_there_is_named() -> None:
    assert "cannot be reached" in refusal(f"postgresql://user:{PASSWORD}@127.0.0.1:1/db")


def test_a_wrong_password_is_told_and_not_shown(postgres: Postgres) -> None:
    said = refusal(postgres.url("postgres", "wr0ng-Passw0rd"))
    assert "refuses the password" in said
    assert "wr0ng-Passw0rd" not in said


def test_a_database_that_does_not_exist_is_named(postgres: Postgres) -> None:
    assert "createdb nowhere" in refusal(postgres.url("nowhere"))


def test_a_newer_schema_is_left_alone(url: str) -> None:
    with Store.open(url) as store, store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE quietlane_alembic_version SET version_num = '9999'")
    assert "newer quietlane" in refusal(url)


def test_a_bare_path_is_an_sqlite_file(tmp_path: Path) -> None:
    with Store.open(str(tmp_path / "new folder" / "100% study.db")) as store:
        store.optuna_storage()
    assert (tmp_path / "new folder" / "100% study.db").is_file()
