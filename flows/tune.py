"""The flow ``tune``: the baseline first, then trial after trial, then what a person wakes up to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flows.surroundings import prepare

prepare()

import optuna  # noqa: E402
from optuna.trial import TrialState  # noqa: E402
from prefect import flow, task  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.states import Completed, State  # noqa: E402

from flows.budget import Budget, improbable_gain  # noqa: E402
from flows.confirm import confirm_search, confirming  # noqa: E402
from flows.ending import Ending, conclude, write_json  # noqa: E402
from flows.launch_history import times_of  # noqa: E402
from flows.opening import Search, open_search  # noqa: E402
from flows.parameters import TuneParameters  # noqa: E402
from flows.refused import Refused  # noqa: E402
from flows.resuming import enqueue_known, recall  # noqa: E402
from flows.trial import FEASIBLE, EnvironmentBroken, Told, run_trial  # noqa: E402
from flows.voice import say  # noqa: E402
from report.trial_facts import TrialFacts, feasible  # noqa: E402
from search_spaces.space import Assignment  # noqa: E402

# A sampler that keeps proposing what a rule forbids is cut off; each such proposal costs milliseconds.
_FORBIDDEN_IN_A_ROW = 200


@dataclass(frozen=True)
class Proposal:
    """A trial that no rule forbids."""

    trial: optuna.Trial
    assignment: Assignment
    label: str
    is_baseline: bool
    is_known: bool


def propose(search: Search) -> Proposal | None:
    """The next trial; one that breaks a rule of the space is told as infeasible without a launch."""
    for _ in range(_FORBIDDEN_IN_A_ROW):
        trial = search.study.ask()
        search.claim(trial)
        assignment = search.space.suggest(trial)
        broken = search.space.broken_rule(assignment)
        if broken is None:
            is_baseline = assignment == search.space.baseline_assignment() and not search.board.baseline
            is_known = any(assignment == known for _, known in search.space.enqueued())
            return Proposal(trial, assignment, search.space.label(assignment), is_baseline, is_known or is_baseline)
        trial.set_user_attr("what", search.space.label(assignment))
        trial.set_user_attr("failure", f"not launched, a rule of the space forbids it: {broken}")
        trial.set_constraint(FEASIBLE, 1.0)
        search.study.tell(trial, search.board.lowest_score)
    return None


def _braceless(name: str) -> str:
    """A name that Prefect does not take for a template."""
    return name.replace("{", "(").replace("}", ")")[:250]


def _as_run(name: str, work: Callable[[], Told]) -> Told:
    """The work as a run of its own in Prefect, whose final state says what came out."""
    outcome: list[Told] = []

    def trial() -> State[None]:
        told = work()
        outcome.append(told)
        return Completed(name="Infeasible" if told.facts.failure else "Completed", message=told.sentence())

    in_prefect = task(name="trial", task_run_name=_braceless(name), cache_policy=NO_CACHE, persist_result=False)
    in_prefect(trial)()
    return outcome[0]


# `confirm` begins with three launches of each finalist and of the baseline.
_CONFIRMING_LAUNCHES = 15


def _budget(search: Search) -> Budget:
    """Trials and time, as asked for, else as the space says."""
    parameters, budget, now = search.parameters, search.space.budget, time.time()
    ends = parameters.ends(now)
    if ends is None and parameters.trials is None:
        ends = now + budget.hours * 3600
    return Budget(parameters.trials or budget.trials, now, ends, _CONFIRMING_LAUNCHES if parameters.confirm else 0)


def _scores(search: Search) -> list[float | None]:
    """Scores of this environment's trials in their order, ``None`` of those that do not work."""
    trials = search.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    known = [(trial, facts) for trial in trials if (facts := TrialFacts.of(trial)) and facts.reused_from is None]
    return [
        trial.value if feasible(trial) else None
        for trial, facts in known
        if facts.environment_id == search.environment_id
    ]


def _search(search: Search, budget: Budget) -> str | None:
    """Trial after trial until the budget ends; the reason if it ended before."""
    done = 0
    while True:
        now, times = time.time(), times_of(search)
        spent = budget.spent(done, now, times)
        if spent:
            return None if done == budget.launches else spent
        improbable = improbable_gain(_scores(search), budget.launches_left(done, now, times))
        if improbable:
            return improbable
        proposal = propose(search)
        if proposal is None:
            return f"the sampler found nothing in {_FORBIDDEN_IN_A_ROW} tries that the rules of the space allow"
        number = proposal.trial.number
        say(f"[{done + 1}/{budget.launches}] trial {number}: {proposal.label}")
        try:
            told = _as_run(f"{number} {proposal.label}", partial(run_trial, search, **vars(proposal)))
        except EnvironmentBroken as error:
            return str(error)
        say(f"  {told.sentence()}", warning=told.facts.failure is not None)
        done += 1
        if search.broken is not None:
            return f"{search.broken.sentence()}; {search.broken.remedy}"


def _confirmed(search: Search, ending: Ending, budget: Budget) -> Ending:
    """The ending once the finalists were launched again, in the time that was kept back for it."""
    if not search.parameters.confirm or ending.winner is None or search.broken is not None:
        return ending
    try:
        confirmed = confirm_search(search, confirming(search.parameters), budget.ends)
    except Refused as refused:
        say(f"Nothing to confirm: {refused}", warning=True)
        return ending
    found: dict[str, object] = {"verdict": confirmed.headline}
    if confirmed.winner is not None:
        trial = ending.baseline if confirmed.winner_trial is None else confirmed.winner_trial
        found |= {"winner": trial, "winner_label": confirmed.winner_label or "baseline"}
        found["launch_script"] = confirmed.launch_script
    whole = ending.model_copy(update=found)
    write_json(search, whole)
    return whole


@flow(name="tune", flow_run_name="tune-{parameters.space}", validate_parameters=True, persist_result=False)
def tune(parameters: TuneParameters) -> Ending:
    """Search one space for the fastest configuration and say how it compares with the baseline."""
    with open_search(parameters) as search:
        rehearsal = " REHEARSAL: a stand-in engine, every figure is invented." if search.rehearsal else ""
        say(f"Study {search.study_name} of {search.space.model.path} in {search.store.url}.{rehearsal}")
        recall(search)
        enqueue_known(search)
        for sentence in search.earlier.sentences:
            say(sentence)
        budget = _budget(search)
        stopped_because = _search(search, budget)
        if stopped_because:
            say(f"The search stopped: {stopped_because}", warning=True)
        return _confirmed(search, conclude(search, stopped_because), budget)
