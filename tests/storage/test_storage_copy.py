"""A study goes to PostgreSQL and back, and nothing changes on the way; a check finds what is damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import optuna
import pytest
from sqlalchemy import select
from storage_postgres_server import Postgres
from test_storage_store import CONFIGURATION, SAMPLES, measurement

from storage import StorageError, Store
from storage.check import check
from storage.copy import copy_storage, tables

optuna.logging.set_verbosity(optuna.logging.WARNING)


def filled(url: str, folder: Path) -> None:
    with Store.open(url) as store:
        study = optuna.create_study(storage=store.optuna_storage(), study_name="night")
        store.record_search("night", space="s", space_yaml="ä: ∞\n", model="/m", baseline=CONFIGURATION)
        environment = store.record_environment({"gpu": "x"})
        for number in range(3):
            trial = study.ask()
            trial.suggest_float("x", 0, 1)
            trial.suggest_categorical("a", ["NEXTN", None])
            trial.report(float("nan"), 0)
            launch = store.begin_launch("night", number, "trial", CONFIGURATION, environment_id=environment)
            store.record_measurement(launch, measurement(1 / 3 + number))
            store.end_launch(launch, "measured")
            study.tell(trial, [float("inf"), 1 / 3, 0.1][number])
        log = folder / "engine.log"
        log.write_text("ready\n")
        store.record_artifact(log, "log", study="night", launch_id=launch)


def rows(url: str) -> dict[str, list[dict[str, object]]]:
    with Store.open(url) as store:
        store.optuna_storage().engine.dispose()
        with store._engine.begin() as connection:
            return {
                table.name: [
                    dict(row) for row in connection.execute(select(table).order_by(*table.primary_key)).mappings()
                ]
                for table in tables()
            }


def test_a_study_survives_the_way_to_postgresql_and_back(postgres: Postgres, tmp_path: Path) -> None:
    first, shared, back = f"sqlite:///{tmp_path}/a.db", postgres.new_database(), f"sqlite:///{tmp_path}/b.db"
    filled(first, tmp_path)
    copied = copy_storage(first, shared)
    assert copied.rows["trials"] == 3
    assert copied.rows["measurements"] == 3
    assert copy_storage(shared, back) == copied
    assert repr(rows(first)) == repr(rows(shared)) == repr(rows(back))
    with Store.open(shared) as store:  # and goes on there
        study = optuna.load_study(storage=store.optuna_storage(), study_name="night")
        assert study.ask().number == 3
        launch = store.begin_launch("night", 3, "trial", CONFIGURATION)
        id = store.record_measurement(launch, measurement())
        assert store.samples(id) == SAMPLES
    assert {finding.severity for finding in check(shared)} <= {"good", "note"}


def test_a_target_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    first, second = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    filled(first, tmp_path)
    copy_storage(first, second)
    with pytest.raises(StorageError, match="already has rows"):
        copy_storage(first, second)
    with pytest.raises(StorageError, match="same database"):
        copy_storage(first, first)
    with pytest.raises(StorageError, match="no database"):
        copy_storage(f"sqlite:///{tmp_path}/none.db", second)


def test_a_whole_database_is_found_good(url: str, tmp_path: Path) -> None:
    filled(url, tmp_path)
    findings = check(url)
    assert {finding.severity for finding in findings} == {"good"}
    assert "3 rows in launches." in [finding.sentence for finding in findings]


def test_damage_is_found_and_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    filled(url, tmp_path)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("UPDATE measurement_details SET samples = x'00' WHERE measurement_id = 2")
        connection.execute("UPDATE searches SET plan = 'no json'")
        connection.execute("UPDATE launches SET outcome = 'running', owner_incarnation = 'gone' WHERE id = 1")
        (path,) = connection.execute("SELECT path FROM artifacts").fetchone()
    Path(path).write_text("other\n")
    said = "\n".join(finding.sentence for finding in check(url) if finding.severity != "good")
    assert "samples of measurement 2" in said
    assert "searches.plan of row 1" in said
    assert "not what was recorded" in said
    assert "Launch 1 was left unfinished" in said
