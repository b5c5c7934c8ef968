"""What the search knows so far: the baseline's figures, the best seen at each level, and the incumbent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search_spaces.objective import best_still_possible, score


@dataclass
class ScoreBoard:
    """Output tokens a second by level; empty until the baseline is measured."""

    weights: Mapping[str, float]
    baseline: dict[str, float] = field(default_factory=dict)
    best_at_level: dict[str, float] = field(default_factory=dict)
    best_score: float = 0.0
    lowest_score: float = 1.0

    def score(self, throughput: Mapping[str, float]) -> float:
        """The configuration's score; 1.0 for the baseline itself."""
        return score(throughput, self.baseline or throughput, self.weights)

    def hopeless(self, so_far: Mapping[str, float]) -> float | None:
        """The best score still possible if even that cannot reach the incumbent, else ``None``."""
        if not self.baseline or not self.best_score:
            return None
        bound = best_still_possible(so_far, self.baseline, self.best_at_level, self.weights)
        return bound if bound < self.best_score else None

    def take(self, throughput: Mapping[str, float], *, is_baseline: bool = False) -> float:
        """Remember a complete result and return its score."""
        if is_baseline and not self.baseline:
            self.baseline = dict(throughput)
        result = self.score(throughput)
        for level, value in throughput.items():
            self.best_at_level[level] = max(value, self.best_at_level.get(level, 0.0))
        self.best_score = max(self.best_score, result)
        self.lowest_score = min(self.lowest_score, result)
        return result
