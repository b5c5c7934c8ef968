"""Any Optuna sampler through plain ask and tell, with or without what a careful user adds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import optuna
from optuna.samplers import BaseSampler
from optuna.trial import TrialState

from benchmarks.search.strategies.trace import CHECKPOINTS, Trace, begin
from benchmarks.search.surfaces.space import Assignment
from benchmarks.search.surfaces.surface import Surface

# How often a sampler may propose what breaks a rule before the proposal is launched all the same.
MOST_REFUSALS = 40


@dataclass(frozen=True)
class ThroughOptuna:
    """`constraint`: a crash is told as a violated constraint (else FAIL).

    `careful`: rules are checked before a launch, and known-good configurations are enqueued.
    """

    name: str
    sampler: Callable[[Surface, int], BaseSampler]
    constraint: bool = True
    careful: bool = True

    def search(self, surface: Surface, seed: int, launches: int, checkpoints: Sequence[int] = CHECKPOINTS) -> Trace:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(direction="maximize", sampler=self.sampler(surface, seed))
        trace = begin(surface, seed)
        if self.careful:
            for known in surface.known_good:
                study.enqueue_trial(known)
        refusals = 0
        while len(trace.launched) < launches:
            began = time.process_time()
            trial = study.ask()
            assignment = surface.space.suggest(trial)
            trace.seconds_asking += time.process_time() - began
            if self.careful and surface.rule(assignment) and refusals < MOST_REFUSALS:
                refusals += 1
                self._tell(study, trial, None, trace)
                continue
            refusals = 0
            self._tell(study, trial, trace.launch(assignment), trace)
            if len(trace.launched) in checkpoints:
                trace.named[len(trace.launched)] = _incumbent(study, trace)
        return trace

    def _tell(self, study: optuna.Study, trial: optuna.trial.Trial, value: float | None, trace: Trace) -> None:
        if value is not None:
            trial.set_constraint("feasible", 0.0)
            study.tell(trial, value)
        elif self.constraint:
            trial.set_constraint("feasible", 1.0)
            worst = min((v for _, v in trace.launched if v is not None), default=1.0)
            study.tell(trial, worst)
        else:
            study.tell(trial, state=TrialState.FAIL)


def _incumbent(study: optuna.Study, trace: Trace) -> Assignment | None:
    named = getattr(study.sampler, "incumbent", None)
    if named is None:
        return trace.luckiest
    best = named(study)
    return None if best is None else dict(best.params)
