"""A study that goes on where it stopped: what is known already, and what is tried before the sampler chooses."""

from __future__ import annotations

from optuna.trial import TrialState

from flows.opening import Search
from flows.priors import is_known_here
from report.trial_facts import TrialFacts, feasible


def recall(search: Search) -> None:
    """Take earlier results of this study into account, those of the same environment and the same levels alone."""
    levels = {level.name for level in search.plan.levels}
    trials = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    known = [(trial, facts) for trial in trials if (facts := TrialFacts.of(trial))]
    here = [(trial, facts) for trial, facts in known if facts.environment_id == search.environment_id]
    for baseline_first in (True, False):
        for trial, facts in here:
            complete = feasible(trial) and set(facts.throughput) == levels and not facts.stopped_early
            if facts.is_baseline is baseline_first and complete and facts.reused_from is None:
                search.board.take(facts.throughput, is_baseline=facts.is_baseline)
    if search.board.baseline:
        for trial, facts in here:
            search.seen.setdefault(facts.identity, trial.number)


def enqueue_known(search: Search) -> None:
    """The baseline first, unless this environment's is known; then the space's known-good configurations, once; then
    what was good in other environments, once too."""
    space, study = search.space, search.study
    if not search.board.baseline:
        study.enqueue_trial(space.fixed(space.baseline_assignment()))
    known = [(assignment, f"{enqueued.name}: {enqueued.note}") for enqueued, assignment in space.enqueued()]
    hints = [(hint.assignment, f"a hint: {hint.note}") for hint in search.earlier.hints]
    for assignment, note in (*known, *hints):
        if not is_known_here(study, assignment, search.environment_id):
            study.enqueue_trial(space.fixed(assignment), user_attrs={"note": note})
