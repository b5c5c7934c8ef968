"""Optuna's trials, read in bulk: a study of 10,000 trials opens in about a second, and not in ten.

Optuna builds an object a row before it builds the trial; the first `ask` of a large study spends nearly all its time
so. Here each table is read once, as plain rows, and a distribution that thousands of trials share is parsed once.
The tables are Optuna's own (`optuna.storages._rdb.models`, unchanged from 3.2 to 5.0); Optuna's storage suite is run
against what this returns.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Collection
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages._rdb import models
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy import ColumnElement, Connection, and_, or_, select

# SQLite takes 32,766 variables in one statement, older ones 999.
_MOST_IDS = 900
_TRIAL = models.TrialModel.__table__
_PARAM = models.TrialParamModel.__table__
_VALUE = models.TrialValueModel.__table__
_STEP = models.TrialIntermediateValueModel.__table__
_USER = models.TrialUserAttributeModel.__table__
_SYSTEM = models.TrialSystemAttributeModel.__table__
_SPECIAL = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}


def load_trials(
    connection: Connection, study_id: int, states: Collection[TrialState] | None, included: Collection[int], after: int
) -> list[FrozenTrial]:
    """The trials of a study whose id is greater than `after` or in `included`, by id; narrowed to `states` if given."""
    wanted = and_(_TRIAL.c.study_id == study_id, _chosen(included, after))
    if states is not None:
        wanted = and_(wanted, _TRIAL.c.state.in_(list(states)))
    rows = connection.execute(select(_TRIAL).where(wanted).order_by(_TRIAL.c.trial_id)).all()
    if not rows:
        return []
    params: dict[int, dict[str, Any]] = defaultdict(dict)
    distributions: dict[int, dict[str, BaseDistribution]] = defaultdict(dict)
    p = _PARAM.c
    for trial, name, value, kind in _children(
        connection, wanted, (p.trial_id, p.param_name, p.param_value, p.distribution_json), p.param_id
    ):
        distribution = _distribution(kind)
        params[trial][name] = distribution.to_external_repr(value)
        distributions[trial][name] = distribution
    values: dict[int, dict[int, float]] = defaultdict(dict)
    v = _VALUE.c
    for trial, objective, value, kind in _children(
        connection, wanted, (v.trial_id, v.objective, v.value, v.value_type)
    ):
        values[trial][objective] = _SPECIAL.get(kind.name, value)
    steps: dict[int, dict[int, float]] = defaultdict(dict)
    s = _STEP.c
    columns = (s.trial_id, s.step, s.intermediate_value, s.intermediate_value_type)
    for trial, step, value, kind in _children(connection, wanted, columns):
        steps[trial][step] = _SPECIAL.get(kind.name, value)
    user, system = (
        _attributes(_children(connection, wanted, (table.c.trial_id, table.c.key, table.c.value_json)))
        for table in (_USER, _SYSTEM)
    )
    return [
        FrozenTrial(
            number=row.number,
            state=row.state,
            value=None,
            values=[value for _, value in sorted(values[row.trial_id].items())] if row.trial_id in values else None,
            datetime_start=_local(row.datetime_start),
            datetime_complete=_local(row.datetime_complete),
            params=params.get(row.trial_id, {}),
            distributions=distributions.get(row.trial_id, {}),
            user_attrs=user.get(row.trial_id, {}),
            system_attrs=system.get(row.trial_id, {}),
            intermediate_values=steps.get(row.trial_id, {}),
            trial_id=row.trial_id,
        )
        for row in rows
    ]


def _chosen(included: Collection[int], after: int) -> ColumnElement[bool]:
    newer: ColumnElement[bool] = _TRIAL.c.trial_id > after
    older = sorted(id for id in included if id <= after)
    if not older:
        return newer
    if len(older) <= _MOST_IDS:
        return or_(newer, _TRIAL.c.trial_id.in_(older))
    return or_(newer, _TRIAL.c.trial_id >= older[0])  # more than was asked for is no harm: the reader keeps it by id


def _children(
    connection: Connection, wanted: ColumnElement[bool], columns: tuple[Any, ...], order: Any = None
) -> list[Any]:
    table = columns[0].table
    query = select(*columns).join(_TRIAL, columns[0] == _TRIAL.c.trial_id).select_from(table).where(wanted)
    return list(connection.execute(query if order is None else query.order_by(order)).all())


def _attributes(rows: list[Any]) -> dict[int, dict[str, Any]]:
    attributes: dict[int, dict[str, Any]] = defaultdict(dict)
    for trial, key, value in rows:
        attributes[trial][key] = json.loads(value)
    return attributes


@lru_cache(maxsize=4096)
def _distribution(text: str) -> BaseDistribution:
    return json_to_distribution(text)


def _local(stored: datetime | None) -> datetime | None:
    return None if stored is None else stored.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
