"""Optuna on our database: its own storage suite holds, settings are on, ghosts are swept."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import optuna
import pytest
from optuna.artifacts import get_all_artifact_meta
from optuna.storages import BaseStorage, RDBStorage
from optuna.testing.pytest_storages import StorageTestCase
from optuna.trial import FrozenTrial, TrialState

from storage import Store
from storage.artifacts import show_in_dashboard
from storage.optuna_study import claim, sweep_ghosts

optuna.logging.set_verbosity(optuna.logging.WARNING)


def told(trial: FrozenTrial) -> str:
    """A trial as text, since NaN equals nothing; attributes have no order of their own."""
    attributes = {name: sorted(value.items()) for name, value in vars(trial).items() if name.endswith("_attrs")}
    return repr(vars(trial) | attributes)


@pytest.mark.slow
class TestOptunasOwnSuite(StorageTestCase):
    """Every test that Optuna asks of a storage, on ours."""

    @pytest.fixture
    def storage(self, sqlite_url: str) -> Iterator[BaseStorage]:
        with Store.open(sqlite_url) as store:
            storage = store.optuna_storage()
            yield storage
            storage.engine.dispose()


def test_sqlite_is_set_up_for_long_searches(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        for engine in (store._engine, store.optuna_storage().engine):
            with engine.connect() as connection:
                assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
                assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 1
                assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == 60_000


def test_optunas_version_table_and_ours_live_side_by_side(empty_url: str) -> None:
    with Store.open(empty_url) as store:
        store.optuna_storage()
        with store._engine.begin() as connection:
            ours = connection.exec_driver_sql("SELECT version_num FROM quietlane_alembic_version").scalar()
            optunas = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    assert ours == "0001"
    assert str(optunas).startswith("v3")


def test_trials_read_in_bulk_are_the_trials_that_optuna_reads(url: str) -> None:
    with Store.open(url) as store:
        storage = store.optuna_storage()
        study = optuna.create_study(storage=storage, study_name="night", direction="maximize")
        study.enqueue_trial({"x": 0.25})
        for number in range(6):
            trial = study.ask()
            trial.suggest_float("x", 0, 1)
            trial.suggest_categorical("algorithm", ["NEXTN", None, True, 4])
            if number % 2:
                trial.suggest_int("steps", 1, 64, log=True)
            trial.set_user_attr("label", {"number": number})
            trial.set_constraint("memory", number - 3.0)
            for step, value in enumerate((1.5, float("inf"), float("nan"))):
                trial.report(value, step)
            study.tell(trial, [float("-inf"), 1 / 3, 0.1][number % 3])
        study.tell(study.ask(), state=TrialState.FAIL)
        study.ask()
        study_id = study._study_id
        for states in (None, (TrialState.COMPLETE,), (TrialState.FAIL, TrialState.RUNNING), ()):
            ours = storage._get_trials(study_id, states, set(), -1)
            optunas = RDBStorage._get_trials(storage, study_id, states, set(), -1)
            assert [told(trial) for trial in ours] == [told(trial) for trial in optunas]
        some = storage._get_trials(study_id, None, {1, 3}, 4)
        assert [trial._trial_id for trial in some] == [1, 3, 5, 6, 7, 8]
        storage.engine.dispose()


def test_a_trial_whose_process_died_is_told_and_one_that_lives_is_not(sqlite_url: str) -> None:
    with Store.open(sqlite_url) as store:
        study = optuna.create_study(storage=store.optuna_storage(), study_name="night")
        mine = study.ask()
        claim(mine)
        unclaimed = study.ask()
        program = (
            "import sys, optuna; from storage import Store; from storage.optuna_study import claim\n"
            "claim(optuna.load_study(study_name='night', storage=Store.open(sys.argv[1]).optuna_storage()).ask())"
        )
        subprocess.run([sys.executable, "-c", program, sqlite_url], check=True, timeout=60)
        assert [trial.number for trial in sweep_ghosts(study)] == [2]
        assert [trial.state for trial in study.get_trials()] == [
            TrialState.RUNNING,
            TrialState.RUNNING,
            TrialState.FAIL,
        ]
        assert [trial.number for trial in sweep_ghosts(study, unclaimed_after_s=-1)] == [unclaimed.number]
        assert datetime.now() - timedelta(minutes=5) < (study.get_trials()[2].datetime_complete or datetime.min)


def test_a_kept_file_is_shown_in_the_dashboard(sqlite_url: str, tmp_path: Path) -> None:
    (tmp_path / "engine.log").write_text("ready\n")
    with Store.open(sqlite_url) as store:
        study = optuna.create_study(storage=store.optuna_storage(), study_name="night")
        trial = study.ask()
        kept = store.record_artifact(tmp_path / "engine.log", "log", study="night")
        id = show_in_dashboard(kept, store.folder, trial)
        study.tell(trial, 1.0)
        (shown,) = get_all_artifact_meta(study.trials[0], storage=study._storage)
        assert shown.artifact_id == id
        assert (store.folder / id).read_text() == "ready\n"


def test_workers_that_ask_at_once_never_share_a_trial(url: str) -> None:
    with Store.open(url) as store:
        study = optuna.create_study(storage=store.optuna_storage(), study_name="night")
        for number in range(4):
            study.enqueue_trial({"x": number / 10})
    taken: list[tuple[int, float]] = []

    def work() -> None:
        with Store.open(url) as own:
            study = optuna.load_study(storage=own.optuna_storage(), study_name="night")
            for _ in range(2):
                trial = study.ask()
                taken.append((trial.number, trial.suggest_float("x", 0, 1)))
                study.tell(trial, 1.0)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(number for number, _ in taken) == list(range(8))
    assert sorted(x for number, x in taken if number < 4) == [0.0, 0.1, 0.2, 0.3]
