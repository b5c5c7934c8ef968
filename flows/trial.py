"""One trial: from an assignment to what Optuna is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import TrialState

from engine.configuration import Configuration
from engine.failure import EngineFailed, Failure
from engine.knowledge import blame_over_launches
from engine.preflight import Answer
from flows.limits import missed
from flows.measured import Measured, launch_and_measure
from flows.opening import Search
from report.trial_facts import TrialFacts, feasible
from search_spaces.space import Assignment

# Optuna's name of the one constraint; violated when > 0.
FEASIBLE = "feasible"


class EnvironmentBroken(Exception):
    """The machine, not a configuration, is at fault: the search stops and says what to mend."""

    def __init__(self, failure: Failure, why: str = "") -> None:
        super().__init__(f"{why}{failure.sentence()}; {failure.remedy or 'look at the log of the launch'}")
        self.failure = failure


@dataclass(frozen=True)
class Told:
    """What a trial came to."""

    number: int
    facts: TrialFacts
    score: float | None

    def sentence(self) -> str:
        """One line for logs and for Prefect."""
        facts = self.facts
        if facts.failure:
            return f"trial {self.number} ({facts.label}): {facts.blame}: {facts.failure}"
        levels = ", ".join(f"{level} {value:.1f}" for level, value in facts.throughput.items())
        text = f"trial {self.number} ({facts.label}): {self.score:.3f} of the baseline; tok/s {levels}"
        if facts.acceptance:
            text += "; acceptance length " + ", ".join(
                f"{level} {value:.2f}" for level, value in facts.acceptance.items()
            )
        if facts.reused_from is not None:
            text += f"; resolves to the same as trial {facts.reused_from}"
        if facts.stopped_early:
            text += "; stopped early"
        return text + (" [REHEARSAL]" if facts.rehearsal else "")


def run_trial(
    search: Search, *, trial: optuna.Trial, assignment: Assignment, label: str, is_baseline: bool, is_known: bool
) -> Told:
    """Preflight, launch, measure, tell. Every end is told to Optuna, the accidental one too.

    A known configuration (one that the space enqueues) is measured at every level, however it does.

    Raises EnvironmentBroken where the search cannot go on.
    """
    try:
        return _judged(search, trial, assignment, label, is_baseline, is_known)
    except BaseException as error:
        if not isinstance(error, EnvironmentBroken):
            trial.set_user_attr("failure", f"the search was interrupted: {type(error).__name__}: {error}"[:1000])
        search.study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        raise


def _judged(
    search: Search, trial: optuna.Trial, assignment: Assignment, label: str, is_baseline: bool, is_known: bool
) -> Told:
    configuration = search.space.configuration(assignment)
    answer = search.preflight.check(configuration) if search.preflight else None
    facts: dict[str, Any] = {
        "label": label,
        "identity": answer.identity if answer else configuration.identity(),
        "environment_id": search.environment_id,
        "is_baseline": is_baseline,
        "rehearsal": search.rehearsal,
    }
    if answer and not answer.accepted:
        return _rejected(search, trial, configuration, answer, facts)
    twin = search.seen.get(facts["identity"])
    if twin is not None and not is_baseline:
        return _reused(search, trial, twin, facts)
    try:
        measured = launch_and_measure(
            search,
            configuration,
            purpose="baseline" if is_baseline else "trial",
            trial_number=trial.number,
            resolved=answer.resolved if answer else None,
            stop_early=not is_known,
        )
    except EngineFailed as error:
        return _failed(search, trial, error.failure, facts)
    return _measured(search, trial, measured, facts)


def _measured(search: Search, trial: optuna.Trial, measured: Measured, facts: dict[str, Any]) -> Told:
    search.unexplained.clear()
    limit = missed(search.space.benchmark.limits, measured.measurements, measured.phases)
    throughput = measured.throughput
    for step, level in enumerate(search.plan.levels):
        if level.name in throughput:
            trial.report(throughput[level.name], step)
    score: float | None
    if limit is not None and not facts["is_baseline"]:
        score, facts = None, {**facts, "failure": f"misses a limit: {limit}", "blame": "configuration"}
    elif measured.stopped_early:
        score = search.board.hopeless(throughput) or search.board.score(throughput)
    else:
        score = search.board.take(throughput, is_baseline=facts["is_baseline"])
    levels = measured.measurements
    complete = TrialFacts(
        **facts,
        launch_id=measured.launch_id,
        throughput=throughput,
        acceptance={m.level.name: m.acceptance_length for m in levels if m.acceptance_length},
        pcie_bytes_per_token={
            m.level.name: m.pcie_bytes_per_token for m in levels if m.pcie_bytes_per_token is not None
        },
        stopped_early=measured.stopped_early,
    )
    return _tell(search, trial, complete, score)


def _rejected(
    search: Search, trial: optuna.Trial, configuration: Configuration, answer: Answer, facts: dict[str, Any]
) -> Told:
    failure = Failure(None, "arguments", answer.rejection or "rejected", "configuration", "", answer.rejection or "")
    launch_id = search.store.begin_launch(
        search.study_name,
        trial.number,
        "trial",
        configuration,
        environment_id=search.environment_id,
        command=search.program.argv(configuration, search.parameters.port or 0),
        rehearsal=search.rehearsal,
    )
    search.store.end_launch(launch_id, "rejected", failure)
    return _infeasible(search, trial, failure, {**facts, "launch_id": launch_id})


def _failed(search: Search, trial: optuna.Trial, failure: Failure, facts: dict[str, Any]) -> Told:
    if failure.blame == "unknown":
        # A failure with a known cause is the configuration's; the same riddle under several ones is the machine's.
        search.unexplained.append((facts["identity"], failure))
    alike = search.unexplained if failure.blame == "unknown" else [(facts["identity"], failure)]
    if facts["is_baseline"] or failure.blame in ("environment", "unknown"):
        failure = blame_over_launches(alike, baseline_failed=facts["is_baseline"])
    if failure.blame == "environment" or facts["is_baseline"]:
        complete = TrialFacts(**facts, failure=failure.sentence(), blame="environment", remedy=failure.remedy)
        for name, value in complete.attributes().items():
            trial.set_user_attr(name, value)
        raise EnvironmentBroken(failure, "the baseline itself failed: " if facts["is_baseline"] else "")
    return _infeasible(search, trial, failure, facts)


def _infeasible(search: Search, trial: optuna.Trial, failure: Failure, facts: dict[str, Any]) -> Told:
    complete = TrialFacts(**facts, failure=failure.sentence(), blame=failure.blame, remedy=failure.remedy)
    return _tell(search, trial, complete, None)


def _reused(search: Search, trial: optuna.Trial, twin: int, facts: dict[str, Any]) -> Told:
    earlier = search.study.get_trials(deepcopy=False)[twin]
    told = TrialFacts.of(earlier)
    assert told is not None, "only trials with facts are remembered as seen"
    shared = {
        name: getattr(told, name)
        for name in ("launch_id", "throughput", "acceptance", "pcie_bytes_per_token", "failure", "blame", "remedy")
    }
    complete = TrialFacts(**facts, **shared, stopped_early=told.stopped_early, reused_from=twin)
    return _tell(search, trial, complete, earlier.value if feasible(earlier) else None)


def _tell(search: Search, trial: optuna.Trial, facts: TrialFacts, score: float | None) -> Told:
    """Optuna learns the score, or (``None``) that the configuration does not work."""
    for name, value in facts.attributes().items():
        trial.set_user_attr(name, value)
    trial.set_constraint(FEASIBLE, 0.0 if score is not None else 1.0)
    # An infeasible trial needs a value too: the mildest one that is no claim, so that no axis is spoilt.
    search.study.tell(trial, score if score is not None else search.board.lowest_score)
    search.seen.setdefault(facts.identity, trial.number)
    return Told(trial.number, facts, score)
