"""Two studies: the real one of two H200 under fixtures/studies, and a made one with a winner and failures."""

from __future__ import annotations

import lzma
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from report_made_study import make_study

from report.study_record import StudyRecord, read_study
from storage import Store

FIXTURE = Path(__file__).parents[1] / "fixtures" / "studies" / "two-h200.db.xz"


@pytest.fixture(scope="session", autouse=True)
def _quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(scope="session")
def real_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a copy of the real study."""
    file = tmp_path_factory.mktemp("real") / "study.db"
    file.write_bytes(lzma.decompress(FIXTURE.read_bytes()))
    return f"sqlite:///{file}"


@pytest.fixture(scope="session")
def real_store(real_url: str) -> Iterator[Store]:
    """The store of the real study."""
    with Store.open(real_url) as store:
        yield store


@pytest.fixture(scope="session")
def real(real_store: Store) -> StudyRecord:
    """The real study, in which the baseline wins."""
    return read_study(optuna.load_study(study_name="nextn-h200", storage=real_store.optuna_storage()), real_store)


@pytest.fixture(scope="session")
def made_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a study with a winner, failures and repeated launches."""
    url = f"sqlite:///{tmp_path_factory.mktemp('made') / 'study.db'}"
    with Store.open(url) as store:
        make_study(store, "made")
        make_study(store, "made-rehearsal", rehearsal=True)
    return url


@pytest.fixture(scope="session")
def made_store(made_url: str) -> Iterator[Store]:
    """The store of the made studies."""
    with Store.open(made_url) as store:
        yield store


@pytest.fixture(scope="session")
def made(made_store: Store) -> StudyRecord:
    """The made study."""
    return read_study(optuna.load_study(study_name="made", storage=made_store.optuna_storage()), made_store)
