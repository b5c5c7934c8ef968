"""The winner against the baseline, level by level."""

from __future__ import annotations

from dataclasses import dataclass

from report.trial_facts import TrialFacts


@dataclass(frozen=True)
class LevelComparison:
    """Output tokens a second of both at one level; ``ratio`` is the winner's over the baseline's."""

    level: str
    baseline: float
    winner: float
    acceptance_length: float | None

    @property
    def ratio(self) -> float:
        """Winner over baseline."""
        return self.winner / self.baseline if self.baseline else float("nan")

    def sentence(self) -> str:
        """As in ``c8: 812.4 against 790.1 tok/s, 2.8 % faster``."""
        percent = (self.ratio - 1) * 100
        word = "faster" if percent >= 0 else "slower"
        text = f"{self.level}: {self.winner:,.1f} against {self.baseline:,.1f} tok/s, {abs(percent):.1f} % {word}"
        return text + (f" (acceptance length {self.acceptance_length:.2f})" if self.acceptance_length else "")


def compare(baseline: TrialFacts, winner: TrialFacts) -> list[LevelComparison]:
    """Every level that both were measured at."""
    return [
        LevelComparison(level, reference, winner.throughput[level], winner.acceptance.get(level))
        for level, reference in baseline.throughput.items()
        if level in winner.throughput
    ]
