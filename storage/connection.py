"""One database, connected, its tables made: what `Store` is built on."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from optuna.storages import RDBStorage
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from storage import migrations
from storage.artifacts import artifact_folder
from storage.database import database_url, open_engine, plain, shown
from storage.durable import PATIENCE_S, durably, first_line
from storage.errors import StorageError
from storage.optuna_study import open_optuna_storage
from storage.redaction import Redactor

T = TypeVar("T")


class Connection:
    """A database whose tables are there. Writes are short transactions; reads see one moment."""

    def __init__(self, url: str, patience_s: float = PATIENCE_S) -> None:
        self._url = database_url(url)
        self.url = shown(self._url)
        """The URL, for people: its password hidden."""
        self.patience_s = patience_s
        self.redactor = Redactor()
        self.redactor.learn(os.environ)
        self.redactor.learn_secret(self._url.password)
        self.folder = artifact_folder(self._url)
        """Where artifacts are kept."""
        self._engine = open_engine(self._url)
        try:
            with self._engine.begin() as connection:
                migrations.upgrade(connection, self.url)
        except DBAPIError as refused:
            self.close()
            raise StorageError(f"The tables of {self.url} cannot be made: {first_line(refused)}.") from refused
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, url: str, patience_s: float = PATIENCE_S) -> Self:
        """Connect, and create or migrate our tables."""
        return cls(url, patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. The store can still be used afterwards; it connects anew."""
        self._engine.dispose()

    def url_with_password(self) -> str:
        """The URL for another program that has to connect (a dashboard); never to be shown or written."""
        return plain(self._url)

    def optuna_storage(self) -> RDBStorage:
        """Optuna's storage on the same database."""
        return open_optuna_storage(self._url, self.patience_s)

    def _write(self, work: Callable[[Session, int], T], what: str) -> T:
        def once(tries: int) -> T:
            with Session(self._engine) as session, session.begin():
                return work(session, tries)

        return durably(once, what, self.url, self.patience_s)

    def _read(self, work: Callable[[Session], T]) -> T:
        def once(_tries: int) -> T:
            with Session(self._engine.execution_options(only_reads=True)) as session, session.begin():
                return work(session)

        return durably(once, "read", self.url, self.patience_s)
