"""An Optuna sampler for few, costly, noisy trials in which half of the space crashes.

Use it when a trial is an engine launch of minutes: the sampler learns from tens of trials which values and pairs of
values crash, and which parameters matter, and proposes what is likely both to run and to be better. Tell a crash as a
finished trial with a violated constraint, and keep FAIL for faults of the machine, which are ignored:

    study = optuna.create_study(direction="maximize", sampler=QuietlaneSampler(seed=1))
    study.enqueue_trial({"backend": "triton", "batch": 16})   # what is known to work
    trial = study.ask()
    configuration = suggest(trial)                             # any define-by-run space
    trial.set_constraint("feasible", 0.0)                      # 1.0 when it crashed
    study.tell(trial, 123.4)                                   # tok/s; a mild value when it crashed
    best = study.sampler.incumbent(study)

What it cannot do: it looks for no Pareto front (several objectives are blended into one), and it expects effects that
mostly add up, on the logarithm if all values are positive.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from search_spaces.sampling import activity, encoding, feasibility, history, objective
from search_spaces.sampling.acquisition import Acquisition
from search_spaces.sampling.proposals import Proposer

if TYPE_CHECKING:
    from optuna.study import Study

# The objective's model reads at most this many trials: the best half and the newest half.
MOST_MEASURED = 400
LEADERS = 8


class QuietlaneSampler(BaseSampler):
    """Proposes launches by expected improvement under an additive Gaussian process, times a learnt chance to run.

    Args:
        seed: makes proposals reproducible: equal history, trial number and seed give the same proposal in any process.
        prior_trials: finished trials of an earlier study of the same model. Their crashes and values count, with an
            own overall level and more noise.
        noise: expected relative error of one measurement (0.02 is 2 %); only a starting point, it is learnt.
    """

    def __init__(
        self, seed: int | None = None, *, prior_trials: Sequence[FrozenTrial] = (), noise: float = 0.02
    ) -> None:
        self._seed = secrets.randbits(32) if seed is None else int(seed)
        self._prior_trials = tuple(prior_trials)
        self._noise = noise
        self._proposals: dict[int, dict[str, Any]] = {}

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter seen so far, in whichever branch, with its newest distribution."""
        space: dict[str, BaseDistribution] = {}
        for seen in study.get_trials(deepcopy=False):
            space.update(seen.distributions)
        return {name: distribution for name, distribution in space.items() if not distribution.single()}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """A value for every parameter of the space; those of branches not taken stay unused."""
        if not search_space and not self._prior_trials:
            return {}
        proposal = self._propose(study, trial, search_space)
        self._proposals[trial._trial_id] = proposal
        return {name: value for name, value in proposal.items() if name in search_space}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A parameter that the proposal holds no fitting value for: of a branch never entered, or with a new range."""
        proposed = self._proposals.get(trial._trial_id, {})
        if param_name in proposed and _fits(param_distribution, proposed[param_name]):
            return proposed[param_name]
        rng = self._rng(trial, param_name)
        known = self._known_values(study, param_name, param_distribution)
        if known and rng.uniform() < 0.5:
            return known[int(rng.integers(len(known)))]
        if isinstance(param_distribution, CategoricalDistribution):
            return param_distribution.choices[int(rng.integers(len(param_distribution.choices)))]
        one = encoding.axis(param_name, param_distribution)
        return one.value(float(rng.uniform())) if one.continuous else one.value(float(rng.integers(one.levels)))

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        self._proposals.pop(trial._trial_id, None)

    def incumbent(self, study: Study) -> FrozenTrial | None:
        """The trial that is probably best: highest posterior mean among those that ran; None before any did."""
        seen = history.read(study.get_trials(deepcopy=False), self._prior_trials, study.directions)
        own = np.flatnonzero(seen.measured & ~seen.pending & ~seen.earlier & (_states(seen) == TrialState.COMPLETE))
        if not len(own):
            return None
        axes = encoding.axes_of([trial.distributions for trial in seen.trials])
        if len(own) < 3 or not axes:
            return seen.trials[own[int(np.argmax(seen.score[own]))]]
        codes = encoding.encode(axes, seen.assignments)
        model = self._fit(axes, seen, codes)
        return seen.trials[own[int(np.argmax(model.mean(codes[own])))]]

    def _propose(self, study: Study, trial: FrozenTrial, space: dict[str, BaseDistribution]) -> dict[str, Any]:
        rng = self._rng(trial, "proposal")
        weights = rng.dirichlet(np.ones(len(study.directions))) if len(study.directions) > 1 else None
        trials = study.get_trials(deepcopy=False)
        seen = history.read(trials, self._prior_trials, study.directions, weights, exclude=trial.number)
        axes = encoding.axes_of([*(t.distributions for t in (*self._prior_trials, *trials)), space])
        if not axes:
            return {}
        codes = encoding.encode(axes, seen.assignments)
        conditions = activity.learn(axes, codes)
        finished = ~seen.pending
        chance = feasibility.learn(axes, codes[finished], seen.crashed[finished])
        fixed = self._fixed(axes, trial)
        tried = frozenset(encoding.keys_of(codes[~seen.earlier]))
        proposer = Proposer(axes, conditions, fixed, tried, rng)
        ran = np.flatnonzero(seen.measured)
        if not len(ran):
            chosen = proposer.best(np.empty((0, len(axes))), np.empty((0, len(axes))), Acquisition(chance))
        else:
            model = self._fit(axes, seen, codes)
            mean = model.mean(codes[ran])
            order = ran[np.argsort(-mean, kind="stable")]
            leaders = codes[order][_first_of_each(codes[order])]
            value = Acquisition(chance, model, leaders[:1])
            chosen = proposer.best(leaders[:LEADERS], codes[ran], value)
        return {one.name: one.value(code) for one, code in zip(axes, chosen[0], strict=True)}

    def _fit(self, axes: Sequence[encoding.Axis], seen: history.History, codes: encoding.Codes) -> objective.Objective:
        rows = np.flatnonzero(seen.measured)
        if len(rows) > MOST_MEASURED:
            best = rows[np.argsort(-seen.score[rows], kind="stable")[: MOST_MEASURED // 2]]
            rest = np.setdiff1d(rows, best)
            rows = np.sort(np.concatenate([best, rest[-(MOST_MEASURED - len(best)) :]]))
        score = seen.score[rows]
        observed = float(np.std(score))
        if seen.logarithmic:
            expected = history.EXPECTED_LOG_SPREAD
            spread = float(np.sqrt((len(score) * observed**2 + 4.0 * expected**2) / (len(score) + 4.0)))
            noise = self._noise
        else:
            spread = observed if observed > 1e-12 * (1.0 + float(np.abs(score).max())) else 1.0
            noise = 0.1 * spread
        # What is far below the rest would stretch the model where nobody wants to go.
        floor = float(np.median(score)) - 4.0 * spread
        return objective.fit(
            axes,
            codes[rows],
            np.maximum(score, floor),
            seen.earlier[rows],
            spread=spread,
            noise=noise,
            pending=codes[seen.pending],
            steps=40 if len(rows) <= 200 else 15,
        )

    def _fixed(self, axes: Sequence[encoding.Axis], trial: FrozenTrial) -> dict[int, float]:
        """What was enqueued for this trial or already suggested in it."""
        given = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        codes = {column: one.code(given[one.name]) for column, one in enumerate(axes) if one.name in given}
        return {column: code for column, code in codes.items() if np.isfinite(code)}

    def _known_values(self, study: Study, name: str, distribution: BaseDistribution) -> list[Any]:
        """Values of this parameter in trials that ran, in the better half."""
        seen = history.read(study.get_trials(deepcopy=False), self._prior_trials, study.directions)
        scored = [
            (score, trial.params[name])
            for trial, score in zip(seen.trials, seen.score, strict=True)
            if name in trial.params and np.isfinite(score) and _fits(distribution, trial.params[name])
        ]
        scored.sort(key=lambda pair: -pair[0])
        return [value for _, value in scored[: (len(scored) + 1) // 2]]

    def _rng(self, trial: FrozenTrial, purpose: str) -> np.random.Generator:
        return np.random.default_rng([self._seed, trial.number, zlib.crc32(purpose.encode())])


def _fits(distribution: BaseDistribution, value: Any) -> bool:
    try:
        return bool(distribution._contains(distribution.to_internal_repr(value)))
    except (ValueError, TypeError):
        return False


def _states(seen: history.History) -> NDArray[np.object_]:
    states = np.empty(len(seen.trials), dtype=object)
    states[:] = [trial.state for trial in seen.trials]
    return states


def _first_of_each(codes: encoding.Codes) -> list[int]:
    first: dict[bytes, int] = {}
    for row, key in enumerate(encoding.keys_of(codes)):
        first.setdefault(key, row)
    return list(first.values())
