"""What other nights found out: priors where the model and the environment are the same, hints where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FixedTrial, FrozenTrial, TrialState

from benchmark.plan import Plan
from report.trial_facts import TrialFacts, feasible
from search_spaces import Space, SpaceError
from search_spaces.space import Assignment
from storage import Store

# The best few of another environment are worth a launch each; more would spend the night on the past.
_HINTS = 3
# So many differences tell what kind of change it was.
_DIFFERENCES_SHOWN = 4


@dataclass(frozen=True)
class Hint:
    """A configuration that was good elsewhere, and where that was."""

    assignment: Assignment
    note: str
    score: float


@dataclass(frozen=True)
class Earlier:
    """Results of other studies, and of this one in other environments.

    Attributes:
        trials: of the same model, environment and levels; the sampler learns from them.
        hints: the best few of other environments, tried early; nothing else of those counts.
        sentences: which is which, for people.
    """

    trials: tuple[FrozenTrial, ...] = ()
    hints: tuple[Hint, ...] = ()
    sentences: tuple[str, ...] = ()


def earlier_results(
    store: Store, space: Space, plan: Plan, *, study: str, environment_id: int, rehearsal: bool
) -> Earlier:
    """Look through every search in the store that served the same model. A rehearsal learns from rehearsals alone."""
    environments = {one.id: one.details for one in store.environments()}
    levels = plan.model_dump(mode="json")["levels"]
    trials: list[FrozenTrial] = []
    hints: list[Hint] = []
    sentences: list[str] = []
    for search in store.searches():
        if search.rehearsal != rehearsal or search.model != store.redactor.text(space.model.path):
            continue
        own, alike = search.study_name == study, search.plan.get("levels") == levels
        known = _known(store, search.study_name, space)
        here = [trial for trial, facts, _ in known if facts.environment_id == environment_id]
        if here and alike and not own:
            trials += here
            sentences.append(
                f"{len(here)} trials of study {search.study_name}, of the same model and environment, count as priors."
            )
        elsewhere = [one for one in known if one[1].environment_id != environment_id or not (alike or own)]
        there = _hints(elsewhere, search.study_name, own)
        if there:
            hints += there
            changed = {facts.environment_id for _, facts, _ in elsewhere} - {environment_id}
            differences = differing(environments.get(max(changed), {}), environments[environment_id]) if changed else []
            why = f"in another environment ({', '.join(differences) or 'nothing that is recorded differs'})"
            sentences.append(
                f"{len(elsewhere)} trials of study {search.study_name} were measured "
                f"{why if changed else 'at other levels'}: only hints, of which the best few are tried first."
            )
    hints.sort(key=lambda hint: -hint.score)
    return Earlier(tuple(trials), tuple(hints[:_HINTS]), tuple(sentences))


def _known(store: Store, study: str, space: Space) -> list[tuple[FrozenTrial, TrialFacts, Assignment]]:
    """The finished trials of a study that this space could have asked for too, each with its assignment."""
    try:
        loaded = optuna.load_study(study_name=study, storage=store.optuna_storage())
    except KeyError:
        return []
    found: list[tuple[FrozenTrial, TrialFacts, Assignment]] = []
    for trial in loaded.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
        facts = TrialFacts.of(trial)
        if facts is None or facts.reused_from is not None:
            continue
        try:
            assignment = space.suggest(FixedTrial(trial.params))
        except (ValueError, SpaceError):
            continue
        if assignment.keys() == trial.params.keys() and space.broken_rule(assignment) is None:
            found.append((trial, facts, assignment))
    return found


def _hints(elsewhere: list[tuple[FrozenTrial, TrialFacts, Assignment]], study: str, own: bool) -> list[Hint]:
    where = "this study, in an earlier environment" if own else f"study {study}"
    return [
        Hint(assignment, f"trial {trial.number} of {where}, scored {trial.value:.3f} of the baseline", trial.value)
        for trial, facts, assignment in elsewhere
        if trial.value is not None and feasible(trial) and not facts.is_baseline and not facts.stopped_early
    ]


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two descriptions of an environment, as in ``driver 580 then, 590 now``; a few at most."""
    old, new = _flat(before), _flat(now)
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    texts = [f"{name} {old.get(name, 'none')} then, {new.get(name, 'none')} now" for name in names]
    hidden = len(texts) - _DIFFERENCES_SHOWN
    return texts[:_DIFFERENCES_SHOWN] + ([f"and {hidden} more"] if hidden > 0 else [])


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping):
        flat: dict[str, Any] = {}
        for key, inner in value.items():
            flat |= _flat(inner, f"{name} {key}".strip())
        return flat
    if isinstance(value, list | tuple):
        flat = {}
        for place, inner in enumerate(value):
            flat |= _flat(inner, f"{name} {place}")
        return flat
    return {name: value}


def is_known_here(study: optuna.Study, assignment: Assignment, environment_id: int) -> bool:
    """Whether a configuration waits to be tried, or was tried in this environment."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.COMPLETE)):
        if trial.state == TrialState.WAITING:
            if trial.system_attrs.get("fixed_params") == assignment:
                return True
        elif trial.params == assignment:
            facts = TrialFacts.of(trial)
            if facts is None or facts.environment_id == environment_id:
                return True
    return False
