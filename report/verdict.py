"""What the confirming launches say: who is faster than whom, and which configuration wins. Pure.

Those that miss a service-level limit, or could not be launched again, are out before speed counts. Of the rest, the
fastest by mean and whoever cannot be told apart from it are tied, and of these the lightest on PCIe wins: equal speed
with less traffic leaves room for more load. Where traffic was not counted, the baseline wins if it is among the tied.

With k configurations the error of 5 % is shared by k - 1 comparisons, so that the truly fastest one is called slower in
at most 5 % of reports (as in J. C. Hsu, "Constrained simultaneous confidence intervals for multiple comparisons with
the best", Annals of Statistics 12, 1984, by Bonferroni's bound).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from report.repeated_looks import ERROR, FIRST_LOOK, MOST_LAUNCHES, Comparison, compare
from search_spaces.objective import score

# Traffic within this share is equal: the counters are sampled and prompts are not all alike.
_EQUAL_TRAFFIC = 0.01


@dataclass(frozen=True)
class Repeats:
    """One configuration, launched again and again.

    Attributes:
        name: ``baseline`` or ``trial 7``; each name once.
        algorithm: of speculation, ``off`` without.
        throughput: of each launch, output tokens a second by level.
        pcie_bytes_per_token: mean over launches and levels, ``None`` where it was not counted.
        out: why it cannot win (a limit missed, a failed launch), ``None`` where it can.
    """

    name: str
    label: str
    throughput: Sequence[Mapping[str, float]] = ()
    is_baseline: bool = False
    algorithm: str = "off"
    pcie_bytes_per_token: float | None = None
    out: str | None = None

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels that every launch was measured at."""
        shared = [set(launch) for launch in self.throughput]
        return tuple(level for level in self.throughput[0] if all(level in one for one in shared)) if shared else ()

    def scores(self, weights: Mapping[str, float]) -> list[float]:
        """One figure a launch: the weighted geometric mean of its throughputs, in tokens a second."""
        return [score(launch, dict.fromkeys(self.levels, 1.0), weights) for launch in self.throughput]

    def at(self, level: str) -> list[float]:
        """Throughput of each launch at one level."""
        return [launch[level] for launch in self.throughput]

    def called(self) -> str:
        """As in ``trial 7 (speculation=nextn steps=3)``."""
        return self.name if self.is_baseline or not self.label else f"{self.name} ({self.label})"


@dataclass(frozen=True)
class Verdict:
    """The outcome. ``against_baseline`` and ``against_fastest`` hold comparisons by the name of the configuration."""

    headline: str
    winner: Repeats | None
    fastest: Repeats | None
    tied: tuple[Repeats, ...] = ()
    out: tuple[Repeats, ...] = ()
    against_baseline: Mapping[str, Comparison] = field(default_factory=dict)
    against_fastest: Mapping[str, Comparison] = field(default_factory=dict)
    speculation: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judge:
    """How a set of configurations is compared; the error is shared by as many comparisons as there are rivals.

    ``rivals`` is the number of configurations that began, the baseline included; it does not shrink when one drops out.
    """

    rivals: int
    weights: Mapping[str, float] = field(default_factory=dict)
    most: int = MOST_LAUNCHES
    error: float = ERROR

    def _compare(self, first: Sequence[float], second: Sequence[float]) -> Comparison:
        return compare(first, second, most=self.most, error=self.error / max(self.rivals - 1, 1))

    def overall(self, first: Repeats, second: Repeats) -> Comparison:
        """The first's score against the second's."""
        return self._compare(first.scores(self.weights), second.scores(self.weights))

    def by_level(self, first: Repeats, second: Repeats) -> dict[str, Comparison]:
        """The first against the second at each level that both were measured at."""
        levels = [level for level in first.levels if level in second.levels]
        return {level: self._compare(first.at(level), second.at(level)) for level in levels}

    def mean(self, one: Repeats) -> float:
        """Geometric mean of a configuration's scores over its launches."""
        scores = one.scores(self.weights)
        return math.exp(sum(map(math.log, scores)) / len(scores))

    def fastest(self, all_of_them: Sequence[Repeats]) -> Repeats | None:
        """The fastest by mean of those that can win, ``None`` of none."""
        return max((one for one in all_of_them if one.throughput and not one.out), key=self.mean, default=None)

    def due(self, all_of_them: Sequence[Repeats]) -> list[Repeats]:
        """Who must be launched once more; empty once every difference that matters is decided or used up.

        Those are the differences of whoever can still win to the fastest and to the baseline.
        """
        alive = [one for one in all_of_them if one.is_baseline or not one.out]
        if all(one.out for one in alive):
            return []
        few = [one for one in alive if len(one.throughput) < min(FIRST_LOOK, self.most)]
        if few:
            return few
        fastest = self.fastest(alive)
        against = [one for one in alive if one.is_baseline or one is fastest]
        wanted: list[Repeats] = []
        for one in alive:
            for other in against:
                decided = one is other or self.overall(one, other).decided
                if not decided and (not one.out or not other.out):
                    wanted += [one, other]
        open_ones = [one for one in alive if any(one is due for due in wanted) and len(one.throughput) < self.most]
        # A pair is as long as its shorter side: a launch of the longer one alone would tell nothing.
        shortest = min((len(one.throughput) for one in open_ones), default=0)
        return [one for one in open_ones if len(one.throughput) == shortest]

    def judge(self, all_of_them: Sequence[Repeats]) -> Verdict:
        """Filter by limits, find the fastest and those tied with it, and let the lightest on PCIe win."""
        measured = [one for one in all_of_them if one.throughput]
        out = tuple(one for one in all_of_them if one.out or not one.throughput)
        baseline = next((one for one in measured if one.is_baseline), None)
        fastest = self.fastest(measured)
        against_baseline = {
            one.name: self.overall(one, baseline) for one in measured if baseline and one is not baseline
        }
        lines = tuple(self._speculation(measured, baseline))
        if fastest is None:
            return Verdict(_nobody(out), None, None, (), out, against_baseline, {}, lines)
        against_fastest = {one.name: self.overall(one, fastest) for one in measured if one is not fastest}
        tied = tuple(
            one
            for one in measured
            if not one.out and (one is fastest or against_fastest[one.name].interval.verdict != "slower")
        )
        winner = self._lightest(tied, fastest)
        headline = _headline(winner, fastest, tied, against_baseline.get(winner.name))
        return Verdict(headline, winner, fastest, tied, out, against_baseline, against_fastest, lines)

    def _lightest(self, tied: Sequence[Repeats], fastest: Repeats) -> Repeats:
        traffic = [one.pcie_bytes_per_token for one in tied]
        known = [value for value in traffic if value is not None]
        if len(known) < len(tied):
            # Nothing speaks for leaving the baseline where neither speed nor traffic is known to be better.
            return next((one for one in tied if one.is_baseline), fastest)
        least = min(known) * (1 + _EQUAL_TRAFFIC)
        return max((one for one, value in zip(tied, known, strict=True) if value <= least), key=self.mean)

    def _speculation(self, measured: Sequence[Repeats], baseline: Repeats | None) -> list[str]:
        """A line for each algorithm against the baseline, and one for speculation on against off."""
        best: dict[str, Repeats] = {}
        for one in measured:
            rival = best.get(one.algorithm)
            if rival is None or self.mean(one) > self.mean(rival):
                best[one.algorithm] = one
        lines = [
            levels_sentence(f"{algorithm}, {one.called()},", "the baseline", self, one, baseline)
            for algorithm, one in best.items()
            if baseline is not None and algorithm != baseline.algorithm
        ]
        off, on = best.get("off"), [one for algorithm, one in best.items() if algorithm != "off"]
        if off is not None and on and off is not baseline:
            fastest_on = max(on, key=self.mean)
            first = f"speculation on ({fastest_on.algorithm}, {fastest_on.called()})"
            lines.append(levels_sentence(first, f"speculation off ({off.called()})", self, fastest_on, off))
        return lines


def levels_sentence(first_name: str, second_name: str, judge: Judge, first: Repeats, second: Repeats) -> str:
    """The first against the second, level by level, in one sentence; said as a whole where all levels agree."""
    forward = judge.by_level(first, second)
    verdicts = {one.interval.verdict for one in forward.values()}
    if verdicts == {"faster"}:
        return _strictly(first_name, second_name, forward)
    if verdicts == {"slower"}:
        return _strictly(second_name, first_name, judge.by_level(second, first))
    details = "; ".join(f"{level} {one.sentence()}" for level, one in forward.items())
    return f"{first_name} against {second_name}: {details}"


def _strictly(winner: str, loser: str, comparisons: Mapping[str, Comparison]) -> str:
    details = "; ".join(f"{level} {one.sentence()}" for level, one in comparisons.items())
    return f"{winner.rstrip(',')} strictly outperforms {loser.rstrip(',')} at every concurrency: {details}"


def _nobody(out: Sequence[Repeats]) -> str:
    reasons = "; ".join(f"{one.called()}: {one.out}" for one in out if one.out)
    return f"No configuration wins: {reasons or 'none was measured'}."


def _headline(winner: Repeats, fastest: Repeats, tied: Sequence[Repeats], against: Comparison | None) -> str:
    if winner.is_baseline:
        rivals = "nothing was faster than it" if len(tied) == 1 else "nothing was proven to be faster than it"
        text = f"The baseline wins: {rivals}"
    elif against is None:
        text = f"{_capital(winner.called())} wins; the baseline could not be measured beside it"
    elif against.interval.verdict in ("faster", "slower"):
        text = f"{_capital(winner.called())} wins: {against.sentence()} than the baseline"
    else:
        said = against.sentence().replace("told apart", "told apart from the baseline")
        text = f"{_capital(winner.called())} wins, though it {said}"
    if len(tied) > 1:
        others = ", ".join(one.name for one in tied if one is not winner)
        if winner.is_baseline and winner.pcie_bytes_per_token is None:
            text += f" ({others} cannot be told apart from it, and PCIe traffic, which would decide, was not counted)"
        elif any(one.pcie_bytes_per_token is None for one in tied):
            text += f"; it cannot be told apart from {others}, and PCIe traffic, which would decide, was not counted"
        else:
            text += f"; of those tied with the fastest ({others} too) it is the lightest on PCIe"
    return text + "."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
