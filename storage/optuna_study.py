"""Optuna's storage on our database: set up for long searches, patient with a database that is away, swept of ghosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

import optuna
from optuna.distributions import BaseDistribution, check_distribution_compatibility, distribution_to_json
from optuna.exceptions import StorageInternalError, UpdateFinishedTrialError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import Double, String, bindparam, event, insert, select, update
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from storage.database import connect_arguments, plain, shown, tune_sqlite
from storage.durable import PATIENCE_S, durably, first_line, passes
from storage.errors import StorageError
from storage.owner import Owner, this_process
from storage.trial_loading import load_trials

OWNER = "quietlane:owner"
_TRIAL, _PARAM = models.TrialModel.__table__, models.TrialParamModel.__table__
# Only into a trial that is not finished.
_SET_PARAM = insert(_PARAM).from_select(
    ["trial_id", "param_name", "param_value", "distribution_json"],
    select(
        _TRIAL.c.trial_id,
        bindparam("name", type_=String()),
        bindparam("value", type_=Double()),
        bindparam("distribution", type_=String()),
    ).where(_TRIAL.c.trial_id == bindparam("id"), _TRIAL.c.state.in_([TrialState.RUNNING, TrialState.WAITING])),
)

_TAKE = (
    update(_TRIAL)
    .where(_TRIAL.c.trial_id == bindparam("id"), _TRIAL.c.state == TrialState.WAITING)
    .values(state=TrialState.RUNNING, datetime_start=bindparam("now"))
)

T = TypeVar("T")


def open_optuna_storage(url: URL, patience_s: float = PATIENCE_S) -> RDBStorage:
    """An RDBStorage on the same database as our tables. Raises StorageError with one sentence.

    Optuna and Prefect cannot share one PostgreSQL schema: both own a table ``alembic_version``. Give each a database.
    """
    sqlite = url.get_backend_name() == "sqlite"
    # no pool_pre_ping: every call is tried again anyway, and twenty pings a question are twenty round trips
    options: dict[str, Any] = {"connect_args": connect_arguments(url)}
    # Optuna fills templates into the URL, so a brace of a path or a password is doubled
    text = plain(url).replace("{", "{{").replace("}", "}}")
    try:
        storage = _first_of_many(lambda: PatientStorage(text, options))
    except RuntimeError as incompatible:
        raise StorageError(
            f"The tables in {shown(url)} are not of this Optuna ({first_line(incompatible)}): upgrade them with "
            "`optuna storage upgrade`, or, if Prefect uses this database, give Optuna one of its own."
        ) from incompatible
    except (SQLAlchemyError, StorageInternalError) as refused:
        cause = refused.__cause__ or refused
        raise StorageError(f"Optuna cannot use {shown(url)}: {first_line(cause)}.") from None
    storage.patience_s = patience_s
    storage.where = shown(url)
    if sqlite:
        event.listen(storage.engine, "connect", tune_sqlite)
        storage.engine.dispose()  # the connections so far were made without the settings
    return storage


def _first_of_many(make: Callable[[], PatientStorage]) -> PatientStorage:
    """Two workers that create Optuna's tables at once collide; the later one finds them made."""
    for _ in range(4):
        try:
            return make()
        except (SQLAlchemyError, StorageInternalError):
            time.sleep(0.5)
    return make()


class PatientStorage(RDBStorage):
    """RDBStorage whose calls are tried again, for a bounded time, while the database is away.

    A call whose answer was lost may have been done: telling a trial that is already told so, is no error; a trial
    created twice leaves one RUNNING behind, which `sweep_ghosts` ends.
    """

    patience_s: float = PATIENCE_S
    where: str = "the database"

    def _get_trials(
        self,
        study_id: int,
        states: Container[TrialState] | None,
        included_trial_ids: set[int],
        trial_id_greater_than: int,
    ) -> list[FrozenTrial]:
        """Optuna's own way of reading trials takes ten seconds for ten thousand."""
        wanted = None if states is None else [state for state in TrialState if state in states]

        def work(_tries: int) -> list[FrozenTrial]:
            with self.engine.connect() as connection:
                found = load_trials(connection, study_id, wanted, included_trial_ids, trial_id_greater_than)
            if not found:
                self.get_study_name_from_id(study_id)  # raises KeyError where there is no such study
            return found

        return durably(work, "read Optuna's trials", self.where, self.patience_s)

    def _set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
        previous_distribution: BaseDistribution | None,
    ) -> None:
        """A question has twenty of these; once the parameter is known, one plain statement does."""
        if previous_distribution is None:
            plainly = super()._set_trial_param
            durably(
                lambda _tries: _lay_bare(
                    lambda: plainly(trial_id, param_name, param_value_internal, distribution, previous_distribution)
                ),
                "run Optuna's set_trial_param",
                self.where,
                self.patience_s,
            )
            return
        check_distribution_compatibility(previous_distribution, distribution)
        row = {
            "id": trial_id,
            "name": param_name,
            "value": float(param_value_internal),
            "distribution": distribution_to_json(distribution),
        }

        def work(_tries: int) -> None:
            with (
                suppress(IntegrityError),  # it was set before, as Optuna too lets pass
                self.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection,
            ):
                if connection.execute(_SET_PARAM, row).rowcount == 0:
                    self.check_trial_is_updatable(trial_id, self.get_trial(trial_id).state)

        durably(work, "run Optuna's set_trial_param", self.where, self.patience_s)

    def take(self, trial_id: int) -> bool:
        """Make a WAITING trial RUNNING, in one statement; whether it was this caller that did.

        Optuna reads the state and writes it afterwards; between the two, another worker on SQLite does the same.
        """

        def work(_tries: int) -> bool:
            with self.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
                return connection.execute(_TAKE, {"id": trial_id, "now": datetime.now()}).rowcount == 1

        if durably(work, "take a trial", self.where, self.patience_s):
            return True
        self.check_trial_is_updatable(trial_id, self.get_trial(trial_id).state)
        return False


def _lay_bare(call: Callable[[], T]) -> T:
    """The call's answer; the database's own error where Optuna wraps one that waiting may mend."""
    try:
        return call()
    except StorageInternalError as error:
        if error.__cause__ is not None and passes(error.__cause__):
            raise error.__cause__ from None
        raise


def _patient(name: str) -> Callable[..., Any]:
    plainly = getattr(RDBStorage, name)

    @wraps(plainly)
    def call(self: PatientStorage, *arguments: Any, **named: Any) -> Any:
        def work(tries: int) -> Any:
            try:
                return _lay_bare(lambda: plainly(self, *arguments, **named))
            except UpdateFinishedTrialError:
                if tries and name == "set_trial_state_values":
                    return True
                raise

        return durably(work, f"run Optuna's {name.strip('_')}", self.where, self.patience_s)

    return call


for _name in (
    "create_new_study",
    "set_study_user_attr",
    "set_study_system_attr",
    "get_study_id_from_name",
    "get_study_name_from_id",
    "get_study_directions",
    "get_study_user_attrs",
    "get_study_system_attrs",
    "get_all_studies",
    "_create_new_trial",
    "set_trial_state_values",
    "set_trial_intermediate_value",
    "set_trial_user_attr",
    "set_trial_system_attr",
    "get_trial",
    "_get_best_trial_id",
):
    setattr(PatientStorage, _name, _patient(_name))

_told = PatientStorage.set_trial_state_values


def _set_trial_state_values(
    self: PatientStorage, trial_id: int, state: TrialState, values: Sequence[float] | None = None
) -> bool:
    return self.take(trial_id) if state == TrialState.RUNNING else _told(self, trial_id, state, values)


setattr(PatientStorage, "set_trial_state_values", _set_trial_state_values)  # noqa: B010 - as the ones above


def claim(trial: optuna.Trial) -> None:
    """Write into a trial which process runs it, so that its death can be noticed. Call it right after ``ask``."""
    owner = this_process()
    trial.set_user_attr(OWNER, {"host": owner.host, "pid": owner.pid, "incarnation": owner.incarnation})


def sweep_ghosts(study: optuna.Study, unclaimed_after_s: float = 3600.0) -> list[FrozenTrial]:
    """End the RUNNING trials whose process is gone, as FAIL, and return them; Optuna itself would keep them for ever.

    A trial of another host is left to that host. One that nobody claimed is given `unclaimed_after_s` seconds.
    """
    swept: list[FrozenTrial] = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        owner = _owner(trial)
        if owner is None:
            started = trial.datetime_start
            dead = started is not None and time.time() - started.timestamp() > unclaimed_after_s
        else:
            dead = owner.is_dead() is True
        if not dead:
            continue
        try:
            study.tell(trial.number, state=TrialState.FAIL)
        except (UpdateFinishedTrialError, ValueError):
            continue  # told by someone else meanwhile
        swept.append(trial)
    return swept


def _owner(trial: FrozenTrial) -> Owner | None:
    claimed = trial.user_attrs.get(OWNER)
    try:
        return Owner(str(claimed["host"]), int(claimed["pid"]), str(claimed["incarnation"])) if claimed else None
    except (TypeError, KeyError, ValueError):
        return None
