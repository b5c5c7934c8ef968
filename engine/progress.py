"""How far a start is, which rank is behind, and how long it will take, from what earlier starts took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from engine.phase import PHASES, Phase

_REMEMBERED = 20  # starts a phase: what is older says little of today's caches


@dataclass(frozen=True)
class Spread:
    """Seconds that a phase took in earlier starts: median, least, most, and how many starts that is."""

    median_s: float
    least_s: float
    most_s: float
    starts: int


@dataclass(frozen=True)
class Progress:
    """A start at one moment.

    Attributes:
        phases: every phase begun, of every rank.
        current: rank to the phase it is in, or ended last.
        behind: the rank that the others wait for, ``None`` when none is.
        elapsed_s: seconds since the start began.
        eta_s: seconds left, ``None`` without a history; 0 when ready.
        eta_spread_s: (seconds left if all goes as fast as ever, as slow as ever), ``None`` without a history.
    """

    phases: tuple[Phase, ...]
    current: Mapping[str, Phase]
    behind: str | None
    elapsed_s: float
    eta_s: float | None
    ready: bool
    eta_spread_s: tuple[float, float] | None = None


@dataclass
class StartHistory:
    """Seconds by phase, learnt from the phases of earlier starts of the same model.

    A start teaches, for each phase, the seconds of its slowest rank, for that is what the others wait for.
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, starts: Iterable[Sequence[Phase]]) -> StartHistory:
        """The history of these starts, oldest first."""
        history = cls()
        for phases in starts:
            history.learn(phases)
        return history

    def learn(self, phases: Sequence[Phase]) -> None:
        """Takes one more start; phases that did not end teach nothing."""
        slowest: dict[str, float] = {}
        for phase in phases:
            if phase.done and phase.elapsed_s is not None and phase.name != "ready":
                slowest[phase.name] = max(phase.elapsed_s, slowest.get(phase.name, 0.0))
        for name, taken in slowest.items():
            known = self.seconds.setdefault(name, [])
            known.append(taken)
            del known[:-_REMEMBERED]

    def spread(self, phase: str) -> Spread | None:
        """What this phase took, ``None`` where no start had it."""
        known = self.seconds.get(phase)
        if not known:
            return None
        return Spread(statistics.median(known), min(known), max(known), len(known))

    def left_s(self, phases: Sequence[Phase], now: float | None) -> tuple[float, float, float] | None:
        """Seconds left: (median, least, most), ``None`` without a history.

        A running phase owes the greater of what is left of it by the history and, where it draws a bar, by its bar.
        Known limit: phases between which nothing is printed (imports of model code) are not counted.
        """
        if not any(self.seconds.values()):
            return None
        begun = _begun(phases)
        furthest = max((PHASES.index(name) for name in begun), default=-1)
        totals = [0.0, 0.0, 0.0]
        for index, name in enumerate(PHASES):
            spread = self.spread(name)
            mine = begun.get(name, [])
            if not mine:
                if index > furthest and spread is not None:
                    for place, seconds in enumerate((spread.median_s, spread.least_s, spread.most_s)):
                        totals[place] += seconds
                continue
            for place in range(3):
                totals[place] += max(
                    (_owed(phase, spread, place, now) for phase in mine if not phase.done), default=0.0
                )
        return totals[0], totals[1], totals[2]


def _begun(phases: Sequence[Phase]) -> dict[str, list[Phase]]:
    begun: dict[str, list[Phase]] = {}
    for phase in phases:
        begun.setdefault(phase.name, []).append(phase)
    return begun


def _owed(phase: Phase, spread: Spread | None, place: int, now: float | None) -> float:
    spent = max(now - phase.started_at, 0.0) if now is not None and phase.started_at is not None else 0.0
    by_bar = spent / phase.progress - spent if phase.progress else 0.0
    if spread is None:
        return by_bar
    return max((spread.median_s, spread.least_s, spread.most_s)[place] - spent, by_bar if place != 1 else 0.0, 0.0)


def current_phases(phases: Sequence[Phase]) -> dict[str, Phase]:
    """Rank to the phase it is in, or ended last."""
    current: dict[str, Phase] = {}
    for phase in phases:
        held = current.get(phase.rank)
        if held is None or not phase.done or held.done:
            current[phase.rank] = phase
    return current


def rank_behind(current: Mapping[str, Phase]) -> str | None:
    """The rank that the others wait for: in an earlier phase than another, or alone in not having ended the same one.

    A rank that has ended its phase waits itself: several phases are printed by one rank of each group only.
    """
    if len(current) < 2:
        return None
    place = {rank: PHASES.index(phase.name) for rank, phase in current.items()}
    working = [rank for rank, phase in current.items() if not phase.done]
    earlier = [rank for rank in working if place[rank] < max(place.values())]
    if earlier:
        return min(earlier, key=lambda rank: (place[rank], current[rank].progress or 0.0))
    if len(working) == 1 and any(
        phase.done and place[rank] == place[working[0]] for rank, phase in current.items() if rank != working[0]
    ):
        return working[0]
    return None


def progress_of(
    phases: Sequence[Phase], ready: bool, now: float | None, history: StartHistory | None = None
) -> Progress:
    """The progress that these phases make at ``now`` (unix seconds)."""
    current = current_phases(phases)
    begins = [phase.started_at for phase in phases if phase.started_at is not None]
    elapsed = max(now - min(begins), 0.0) if begins and now is not None else 0.0
    if ready:
        return Progress(tuple(phases), current, None, elapsed, 0.0, True, (0.0, 0.0))
    left = history.left_s(phases, now) if history is not None else None
    return Progress(
        tuple(phases),
        current,
        rank_behind(current),
        elapsed,
        left[0] if left else None,
        False,
        (left[1], left[2]) if left else None,
    )
