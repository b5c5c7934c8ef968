"""The sampler of a study that has lived through several environments: it learns from the present one alone."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, cast

import optuna
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from report.trial_facts import TrialFacts
from search_spaces.sampler import QuietlaneSampler


class _Here:
    """A study without the trials of other environments, as far as a sampler looks at it."""

    def __init__(self, study: optuna.Study, environment_id: int) -> None:
        self._study = study
        self._environment_id = environment_id

    @property
    def directions(self) -> list[StudyDirection]:
        return self._study.directions

    def get_trials(self, deepcopy: bool = True, states: Container[TrialState] | None = None) -> list[FrozenTrial]:
        return [trial for trial in self._study.get_trials(deepcopy, states) if self._is_here(trial)]

    def _is_here(self, trial: FrozenTrial) -> bool:
        facts = TrialFacts.of(trial)
        return facts is None or facts.environment_id == self._environment_id


class EnvironmentSampler(QuietlaneSampler):
    """QuietlaneSampler that ignores what was measured before the driver, the engine or the machine changed.

    Use it where one study may be continued on another machine or after an update. What was good there may be
    enqueued; see ``flows.priors``.
    """

    def __init__(self, seed: int, *, environment_id: int, prior_trials: Sequence[FrozenTrial] = ()) -> None:
        super().__init__(seed=seed, prior_trials=prior_trials)
        self._environment_id = environment_id

    def _here(self, study: optuna.Study) -> optuna.Study:
        return cast(optuna.Study, _Here(study, self._environment_id))

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """As QuietlaneSampler, from this environment's trials."""
        return super().sample_relative(self._here(study), trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """As QuietlaneSampler, from this environment's trials."""
        return super().sample_independent(self._here(study), trial, param_name, param_distribution)

    def incumbent(self, study: optuna.Study) -> FrozenTrial | None:
        """The trial of this environment that is probably best."""
        return super().incumbent(self._here(study))
