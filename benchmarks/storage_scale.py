"""What a large study costs: opening it, asking and telling, the leaderboard; on SQLite or on PostgreSQL.

    python -m benchmarks.storage_scale          # 10,000 trials, 50,000 measurements, SQLite
    python -m benchmarks.storage_scale --trials 1000 --url postgresql://USER:PASSWORD@HOST/EMPTY
    python -m benchmarks.storage_scale --report docs/measurements/storage-scale.md

Rows are loaded in bulk; what is timed goes through `storage.Store` and Optuna as a search does. "Opening" is everything
until the study can be asked: connecting, migrations looked at, Optuna's storage, every trial read into its cache. Ask
and tell are timed with a sampler that decides nothing (each value at random), so that what remains is storage.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution, distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import TrialState
from sqlalchemy import Connection, insert

from benchmark.results import Distribution, Level, Measurement, RequestSample
from engine.configuration import Configuration
from storage import Store
from storage.database import database_url, open_engine
from storage.figures import measurement_columns
from storage.models import ConfigurationRow, LaunchRow, MeasurementDetailRow, MeasurementRow
from storage.samples import pack

STUDY = "scale"
LEVELS = tuple(Level(concurrency) for concurrency in (1, 4, 8, 16, 32))
PARAMETERS: dict[str, BaseDistribution] = {
    **{f"switch {n}": CategoricalDistribution([True, False, None]) for n in range(8)},
    **{f"algorithm {n}": CategoricalDistribution(["NEXTN", "EAGLE", "Ring", "Tree"]) for n in range(6)},
    **{f"size {n}": IntDistribution(1, 64) for n in range(6)},
}
# Issue 6, item 7.
LIMITS = {"open_s": 3.0, "ask_and_tell_ms": 100.0, "leaderboard_s": 2.0}
_BATCH = 1000


@dataclass(frozen=True)
class Cost:
    """What one size of study costs."""

    database: str
    trials: int
    measurements: int
    open_s: float
    open_cpu_s: float
    ask_and_tell_ms: float
    ask_and_tell_p95_ms: float
    ask_and_tell_cpu_ms: float
    leaderboard_s: float
    leaderboard_cpu_s: float
    record_measurement_ms: float
    size_mb: float | None

    def misses(self) -> list[str]:
        """The limits that were missed."""
        return [
            f"{name} {getattr(self, name):.3g} > {limit:g}"
            for name, limit in LIMITS.items()
            if getattr(self, name) > limit
        ]


def load(connection: Connection, trials: int) -> None:
    """Fill the tables with a finished study, in bulk."""
    study_id = connection.scalar(models.StudyModel.__table__.select().with_only_columns(models.StudyModel.study_id))
    kinds = {name: distribution_to_json(kind) for name, kind in PARAMETERS.items()}
    for begin in range(0, trials, _BATCH):
        numbers = range(begin, min(begin + _BATCH, trials))
        now = optuna.trial.create_trial(value=0).datetime_start
        _add(connection, models.TrialModel, (
            {"trial_id": n + 1, "number": n, "study_id": study_id, "state": TrialState.COMPLETE,
             "datetime_start": now, "datetime_complete": now} for n in numbers))  # fmt: skip
        _add(connection, models.TrialParamModel, (
            {"trial_id": n + 1, "param_name": name, "distribution_json": kinds[name],
             "param_value": float((n * 7 + at) % 3) + isinstance(kind, IntDistribution)}
            for n in numbers for at, (name, kind) in enumerate(PARAMETERS.items())))  # fmt: skip
        _add(connection, models.TrialValueModel, (
            {"trial_id": n + 1, "objective": 0, "value": 1 + (n % 97) / 100,
             "value_type": models.TrialValueModel.TrialValueType.FINITE} for n in numbers))  # fmt: skip
        _add(connection, models.TrialSystemAttributeModel, (
            {"trial_id": n + 1, "key": "constraints:failed", "value_json": "-1.0"} for n in numbers))  # fmt: skip
        _add(connection, models.TrialUserAttributeModel, (
            {"trial_id": n + 1, "key": key, "value_json": json.dumps(f"{key} of {n}")}
            for n in numbers for key in ("label", "launch", "quietlane:owner")))  # fmt: skip
        _add(connection, models.TrialIntermediateValueModel, (
            {"trial_id": n + 1, "step": step, "intermediate_value": 1.0 + step,
             "intermediate_value_type": models.TrialIntermediateValueModel.TrialIntermediateValueType.FINITE}
            for n in numbers for step in range(len(LEVELS))))  # fmt: skip
        asked = [Configuration({"--tp-size": 8, "--number": n}) for n in numbers]
        _add(connection, ConfigurationRow, (
            {"id": n + 1, "identity": configuration.identity(), "resolved_identity": f"r{n}",
             "asked": configuration.as_dict(),
             "resolved": {f"setting_{at}": at for at in range(100)}}
            for n, configuration in zip(numbers, asked, strict=True)))  # fmt: skip
        _add(connection, LaunchRow, (
            {"id": n + 1, "uid": f"l{n}", "study_name": STUDY, "trial_number": n, "purpose": "trial",
             "configuration_id": n + 1, "host": "host", "owner_pid": 1, "owner_incarnation": "x", "command": ["serve"],
             "started_at": 1.7e9 + n, "outcome": "measured", "rehearsal": True} for n in numbers))  # fmt: skip
        measured = [(n, at, measurement(LEVELS[at], 100.0 + n % 997)) for n in numbers for at in range(len(LEVELS))]
        _add(connection, MeasurementRow, (
            {"id": n * len(LEVELS) + at + 1, "uid": f"m{n}-{at}", "launch_id": n + 1, "repeat": 0,
             **measurement_columns(m)} for n, at, m in measured))  # fmt: skip
        packed = pack(measured[0][2].samples)
        _add(connection, MeasurementDetailRow, (
            {"measurement_id": n * len(LEVELS) + at + 1, "detail": replace(m, samples=()).as_dict(),
             "sample_count": len(m.samples), "samples": packed} for n, at, m in measured))  # fmt: skip
    if connection.dialect.name == "postgresql":
        for table in (models.TrialModel, LaunchRow, MeasurementRow, ConfigurationRow):
            name, (key,) = table.__tablename__, table.__table__.primary_key
            connection.exec_driver_sql(
                f"SELECT setval(pg_get_serial_sequence('{name}', '{key.name}'), (SELECT max({key.name}) FROM {name}))"
            )


def _add(connection: Connection, model: Any, rows: Iterator[dict[str, Any]]) -> None:
    connection.execute(insert(model.__table__), list(rows))


# 32 requests of 64 tokens
SAMPLES = tuple(
    RequestSample(n * 0.1, 900.0 + n / 7, 30.0 + n / 3, 200, 64, 0, tuple(5 + (n * at % 13) / 11 for at in range(63)))
    for n in range(32)
)
SPREAD = Distribution(5.0, 5.1, 6.2, 9.7)


def measurement(level: Level, throughput: float) -> Measurement:
    """One level, measured."""
    figures = (32, 0, throughput, 3.0, SPREAD, SPREAD, SPREAD, SPREAD, 2.7, 0.6, 3.0, True, SAMPLES, 1.2e6)
    return Measurement(level, 1.7e9, 12.0, *figures)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds on the clock, and seconds of processor: on a busy machine only the second says what the work costs."""
    began, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - processor


def cost(url: str, trials: int, asks: int = 30) -> Cost:
    """Build a study of this size in an empty database and measure it."""
    with Store.open(url) as store:
        optuna.create_study(storage=store.optuna_storage(), study_name=STUDY, direction="maximize")
    engine = open_engine(database_url(url))
    with engine.begin() as connection:
        load(connection, trials)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("ANALYZE")  # as autovacuum does within a minute
    engine.dispose()

    opened: list[Any] = []

    def open_study() -> None:
        store = Store.open(url)
        sampler = optuna.samplers.RandomSampler(seed=1)
        study = optuna.load_study(storage=store.optuna_storage(), study_name=STUDY, sampler=sampler)
        study.get_trials(deepcopy=False)
        opened.extend([store, study])

    open_s, open_cpu_s = timed(open_study)
    store, study = opened
    rounds = []
    processor = time.process_time()
    for _ in range(asks):
        began = time.perf_counter()
        trial = study.ask(PARAMETERS)
        asked = time.perf_counter() - began
        began = time.perf_counter()
        study.tell(trial, 1.0)
        study.get_trials(deepcopy=False)  # a sampler reads them before its next question
        rounds.append(1000 * (asked + time.perf_counter() - began))
    processor = 1000 * (time.process_time() - processor) / asks
    leaderboard_s, leaderboard_cpu_s = min(timed(lambda: store.best_measurements(STUDY)) for _ in range(3))
    launch = store.begin_launch(STUDY, trials, "trial", Configuration({"--tp-size": 8}))
    records = [
        1000 * timed(lambda: store.record_measurement(launch, measurement(LEVELS[0], 100.0)))[0] for _ in range(10)
    ]
    store.close()
    target = database_url(url)
    size = os.path.getsize(str(target.database)) / 1e6 if target.get_backend_name() == "sqlite" else None
    return Cost(
        target.get_backend_name(),
        trials,
        trials * len(LEVELS),
        open_s,
        open_cpu_s,
        statistics.median(rounds),
        sorted(rounds)[int(0.95 * len(rounds))],
        processor,
        leaderboard_s,
        leaderboard_cpu_s,
        statistics.median(records),
        size,
    )


def table(costs: list[Cost]) -> str:
    """The costs as Markdown."""
    names = [
        "database",
        "trials",
        "measurements",
        "open, s",
        "of it processor",
        "ask and tell, ms: median",
        "p95",
        "of it processor",
    ]
    names += ["leaderboard, s", "of it processor", "record a measurement, ms", "file, MB"]
    lines = [f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for c in costs:
        cells = [c.database, f"{c.trials:,}", f"{c.measurements:,}", f"{c.open_s:.2f}"]
        cells += [f"{c.open_cpu_s:.2f}", f"{c.ask_and_tell_ms:.0f}"]
        cells += [f"{c.ask_and_tell_p95_ms:.0f}", f"{c.ask_and_tell_cpu_ms:.0f}", f"{c.leaderboard_s:.2f}"]
        cells += [f"{c.leaderboard_cpu_s:.2f}"]
        cells += [f"{c.record_measurement_ms:.1f}", "" if c.size_mb is None else f"{c.size_mb:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


@contextmanager
def empty_database(url: str | None) -> Iterator[str]:
    """The database that was named, or an SQLite file that is removed afterwards."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="quietlane-scale-") as folder:
        yield f"sqlite:///{folder}/study.db"


def main() -> int:
    """Measure, print, and say by the exit status whether the limits were held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="+", default=[10_000], help="sizes of the study, one after another")
    parser.add_argument(
        "--url", nargs="+", help="empty databases to use, one a size; default: a temporary SQLite file each"
    )
    parser.add_argument("--report", type=Path, help="append the table to this Markdown file")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    costs = []
    for at, trials in enumerate(given.trials):
        with empty_database(given.url[at] if given.url else None) as url:
            costs.append(cost(url, trials))
        print(table(costs[-1:]), flush=True)
    if given.report:
        load_average = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        where = f"{os.cpu_count()} cores, load average {load_average}, Python {platform.python_version()}"
        with given.report.open("a") as report:
            report.write(f"\nMeasured {time.strftime('%Y-%m-%d %H:%M')} on {where}:\n\n{table(costs)}\n")
    missed = [f"{c.database}, {c.trials:,} trials: {miss}" for c in costs for miss in c.misses()]
    print("\n".join(missed) or "All limits were held.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
