"""A database that is busy or gone for a while loses nothing and doubles nothing."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import optuna
import pytest
from storage_postgres_server import Postgres

from engine.configuration import Configuration
from storage import StorageError, Store
from storage import durable as durable_module

optuna.logging.set_verbosity(optuna.logging.WARNING)


def test_a_write_waits_for_another_writer(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        other = sqlite3.connect(tmp_path / "study.db", check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.7, other.rollback)
        timer.start()
        began = time.monotonic()
        store.begin_launch("night", 0, "trial", Configuration())
        assert time.monotonic() - began >= 0.6
        timer.join()
        other.close()
        assert len(store.launches("night")) == 1


def test_a_database_file_that_is_taken_away_is_waited_for_and_not_begun_anew(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    with Store.open(f"sqlite:///{file}") as store:
        store.begin_launch("night", 0, "trial", Configuration())
        store.close()  # so that the next write has to open the file again
        file.rename(tmp_path / "away.db")
        timer = threading.Timer(0.7, lambda: (tmp_path / "away.db").rename(file))
        timer.start()
        store.begin_launch("night", 1, "trial", Configuration())
        timer.join()
        assert [launch.trial_number for launch in store.launches("night")] == [0, 1]


def test_patience_ends_with_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "study.db"
    with Store.open(f"sqlite:///{file}", patience_s=0.5) as store:
        store.close()
        file.rename(tmp_path / "away.db")
        with pytest.raises(StorageError, match=r"Could not record a launch of 'night' .* for 0 s: unable to open"):
            store.begin_launch("night", 0, "trial", Configuration())
        assert not file.exists()


def test_a_commit_whose_answer_was_lost_is_not_done_twice(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(sqlite_url) as store:
        lost = sqlite3.OperationalError("server closed the connection unexpectedly")
        plainly, calls = store._write, []

        def write_and_lose_the_answer(work, what):  # type: ignore[no-untyped-def]
            def forgetful(session, tries):  # type: ignore[no-untyped-def]
                answer = work(session, tries)
                calls.append(answer)
                if tries == 0:
                    session.commit()
                    raise durable_module.OperationalError("COMMIT", {}, lost)
                return answer

            return plainly(forgetful, what)

        monkeypatch.setattr(store, "_write", write_and_lose_the_answer)
        id = store.begin_launch("night", 0, "trial", Configuration())
        assert calls == [id, id]
        assert len(store.launches("night")) == 1


def test_a_postgresql_that_restarts_in_the_middle_loses_nothing(postgres: Postgres) -> None:
    with Store.open(postgres.new_database()) as store:
        storage = store.optuna_storage()
        study = optuna.create_study(storage=storage, study_name="night")
        launches = [store.begin_launch("night", 0, "trial", Configuration())]
        trial = study.ask()
        postgres.stop()
        restart = threading.Timer(1.5, postgres.start)
        restart.start()
        try:
            launches.append(store.begin_launch("night", 1, "trial", Configuration()))
            trial.suggest_float("x", 0, 1)
            study.tell(trial, 1.0)
        finally:
            restart.join()
        assert [launch.id for launch in store.launches("night")] == launches
        assert [trial.state.name for trial in study.get_trials()] == ["COMPLETE"]


def test_two_stores_that_open_a_new_database_at_once_both_succeed(empty_url: str) -> None:
    failures: list[BaseException] = []

    def open_one() -> None:
        try:
            with Store.open(empty_url) as store:
                store.record_environment({"same": True})
                store.optuna_storage().engine.dispose()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=open_one) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with Store.open(empty_url) as store:
        assert len(store.environments()) == 1
