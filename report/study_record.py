"""A study with everything that was recorded of it, read once; every page and command of this room is made of it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial

from benchmark.results import Measurement
from engine.configuration import Configuration
from engine.phase import PHASES, Phase
from report.leaderboard import Standing, standings
from report.trial_facts import TrialFacts, feasible
from storage import EnvironmentRecord, LaunchRecord, MeasurementRecord, SearchRecord, StorageError, Store


class ReportError(Exception):
    """What was asked for is not there; one sentence with the remedy."""


@dataclass(frozen=True)
class StudyRecord:
    """One study, as it was when it was read.

    Attributes:
        search: what was asked for; ``None`` where the study is not quietlane's.
        standings: finished trials, the best first.
        confirmed: the verdict of ``quietlane confirm`` in a sentence, where it was run.
        winner: the trial that is probably best among those measured at every level; the baseline may win.
    """

    name: str
    search: SearchRecord | None
    trials: tuple[FrozenTrial, ...]
    standings: tuple[Standing, ...]
    launches: tuple[LaunchRecord, ...]
    phases: dict[int, tuple[Phase, ...]]
    measurements: dict[int, tuple[MeasurementRecord, ...]]
    environments: dict[int, EnvironmentRecord]
    winner: Standing | None
    baseline: Standing | None
    confirmed: str | None = None

    @property
    def rehearsal(self) -> bool:
        """Whether any figure comes from the stand-in engine."""
        return (
            any(row.facts.rehearsal for row in self.standings)
            or any(launch.rehearsal for launch in self.launches)
            or bool(self.search and self.search.rehearsal)
        )

    @cached_property
    def space(self) -> dict[str, Any]:
        """The space file as it was recorded, as plain values; empty where it cannot be read."""
        text = self.search.space_yaml if self.search else ""
        try:
            values = json.loads(text)
        except ValueError:
            try:
                values = yaml.safe_load(text)
            except yaml.YAMLError:
                values = None
        return values if isinstance(values, dict) else {}

    @property
    def base_environment(self) -> dict[str, str]:
        """Environment variables of every launch."""
        given = (self.space.get("engine") or {}).get("environment") or {}
        return {str(name): str(value) for name, value in given.items() if value is not None}

    @cached_property
    def levels(self) -> tuple[str, ...]:
        """Names of all levels, in the order in which they were measured."""
        best = [self.baseline] if self.baseline else []
        names = [level for row in [*best, *self.standings] for level in row.facts.throughput]
        return tuple(dict.fromkeys(names))

    @cached_property
    def weights(self) -> dict[str, float]:
        """Weight of each level in the score, 1 where none is known."""
        planned = (self.space.get("benchmark") or {}).get("levels") or []
        found: dict[str, float] = {}
        for one in planned:
            concurrency, prompt = one.get("concurrency"), one.get("prompt_tokens")
            for name in (f"c{concurrency}" + (f"-p{prompt}" if prompt else ""), f"c{concurrency}"):
                if name in self.levels:
                    found.setdefault(name, float(one.get("weight") or 1.0))
                    break
        return {level: found.get(level, 1.0) for level in self.levels}

    @cached_property
    def _by_number(self) -> dict[int, FrozenTrial]:
        return {trial.number: trial for trial in self.trials}

    def standing(self, number: int) -> Standing | None:
        """The place of a finished trial."""
        return next((row for row in self.standings if row.number == number), None)

    def trial(self, number: int) -> FrozenTrial:
        """One trial of any state. Raises ReportError."""
        if number in self._by_number:
            return self._by_number[number]
        known = f"trials 0 to {self.trials[-1].number}" if self.trials else "no trial"
        raise ReportError(f"there is no trial {number} in study {self.name!r}, which has {known}")

    def facts(self, number: int) -> TrialFacts | None:
        """What quietlane wrote on a trial."""
        return TrialFacts.of(self.trial(number))

    def label(self, number: int) -> str:
        """What a trial changes against the baseline."""
        facts = self.facts(number)
        return facts.label if facts else str(self.trial(number).user_attrs.get("what", f"trial {number}"))

    def launches_of(self, number: int) -> tuple[LaunchRecord, ...]:
        """The launches of a trial, oldest first; of a trial that shares a result, those of the other one."""
        own = tuple(launch for launch in self.launches if launch.trial_number == number)
        facts = self.facts(number)
        if own or facts is None:
            return own
        if facts.reused_from is not None and facts.reused_from != number:
            return self.launches_of(facts.reused_from)
        return tuple(launch for launch in self.launches if launch.id == facts.launch_id)

    def main_launch(self, number: int) -> LaunchRecord | None:
        """The launch that a trial's result comes from."""
        launches = self.launches_of(number)
        facts = self.facts(number)
        named = [launch for launch in launches if facts and launch.id == facts.launch_id]
        return (named or list(launches) or [None])[-1]  # type: ignore[list-item]

    def repeats(self, number: int) -> tuple[LaunchRecord, ...]:
        """The launches that a trial's figures come from.

        Those of ``quietlane confirm`` alone, where there are at least two: the launch that a trial was chosen for
        flatters it.
        """
        every = self.measured_launches(number)
        fresh = tuple(launch for launch in every if launch.purpose == "confirm")
        return fresh if len(fresh) > 1 else every

    def measured_launches(self, number: int) -> tuple[LaunchRecord, ...]:
        """Every measured launch of a trial's configuration in the environment of its main launch."""
        main = self.main_launch(number)
        if main is None:
            return ()
        return tuple(
            launch
            for launch in self.launches
            if launch.configuration == main.configuration
            and launch.environment_id == main.environment_id
            and launch.rehearsal == main.rehearsal
            and self.measurements.get(launch.id)
            and launch.outcome in ("measured", "pruned")
        )

    def measured(self, launch_id: int) -> dict[str, MeasurementRecord]:
        """The last measurement at each level of a launch."""
        return {one.measurement.level.name: one for one in self.measurements.get(launch_id, ())}

    def memory_left_gb(self, launch_id: int) -> float | None:
        """GPU memory left once the engine was ready, on the rank with the least; ``None`` where it told none."""
        last: dict[str, Phase] = {}
        for phase in sorted(self.phases.get(launch_id, ()), key=lambda one: phase_order(one.name)):
            if phase.memory_left_gb is not None:
                last[phase.rank] = phase
        left = [phase.memory_left_gb for phase in last.values() if phase.memory_left_gb is not None]
        return min(left) if left else None

    def versions(self, launch: LaunchRecord) -> dict[str, str]:
        """Versions that a launch ran on, the engine's first as it told itself."""
        found: dict[str, str] = {}
        told = (launch.server_info or {}).get("version")
        if told:
            found["sglang"] = str(told)
        environment = self.environments.get(launch.environment_id or 0)
        for name, version in ((environment.details.get("versions") or {}) if environment else {}).items():
            found.setdefault(str(name), str(version))
        return found

    def configuration(self, number: int) -> Configuration | None:
        """What a trial was, or would have been, launched with."""
        launch = self.main_launch(number)
        return launch.configuration if launch else None


def phase_order(name: str) -> int:
    """The place of a phase in a start; a phase of another name comes last but before ``ready``."""
    return PHASES.index(name) if name in PHASES else len(PHASES) - 2


def read_study(study: optuna.Study, store: Store) -> StudyRecord:
    """Everything recorded of a study. Raises StorageError."""
    name = study.study_name
    try:
        search: SearchRecord | None = store.search(name)
    except StorageError:
        search = None
    launches = store.launches(name)
    rows = tuple(standings(study))
    baseline = baseline_of(rows, launches[-1].environment_id if launches else None)
    return StudyRecord(
        name=name,
        search=search,
        trials=tuple(study.get_trials(deepcopy=False)),
        standings=rows,
        launches=launches,
        phases=_grouped((one.launch_id, one.phase) for one in store.phases(study=name)),
        measurements=_grouped((one.launch_id, one) for one in store.measurements(name)),
        environments={one.id: one for one in store.environments()},
        winner=winner_of(study, rows),
        baseline=baseline,
        confirmed=study.user_attrs.get("confirmed"),
    )


def winner_of(study: optuna.Study, rows: Iterable[Standing]) -> Standing | None:
    """What is probably best, as the sampler sees it, among the trials that were measured to the end."""
    whole = [row for row in rows if row.score is not None and not row.facts.stopped_early]
    if len(whole) < 2:
        return whole[0] if whole else None
    sampler: Any = study.sampler
    if not hasattr(sampler, "incumbent"):
        from search_spaces.sampler import QuietlaneSampler  # noqa: PLC0415 - scipy is slow to import

        sampler = QuietlaneSampler(seed=0)
    best = sampler.incumbent(study)
    if best is not None and feasible(best):
        facts = TrialFacts.of(best)
        number = facts.reused_from if facts and facts.reused_from is not None else best.number
        for row in whole:
            if row.number == number:
                return row
    return whole[0]


def baseline_of(rows: Iterable[Standing], environment_id: int | None) -> Standing | None:
    """The newest baseline that worked, of this environment where there is one."""
    measured = sorted((row for row in rows if row.facts.is_baseline and row.score is not None), key=lambda r: r.number)
    here = [row for row in measured if row.facts.environment_id == environment_id]
    return (here or measured or [None])[-1]  # type: ignore[list-item]


def _grouped(pairs: Iterable[tuple[int, Any]]) -> dict[int, tuple[Any, ...]]:
    groups: dict[int, list[Any]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return {key: tuple(values) for key, values in groups.items()}


def with_samples(store: Store, record: MeasurementRecord) -> Measurement:
    """A measurement with its samples, as the intervals need it."""
    return replace(record.measurement, samples=tuple(store.samples(record.id)))
