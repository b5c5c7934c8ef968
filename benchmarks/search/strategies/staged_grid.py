"""The staged grid of other tools: one parameter after the other, each option tried, the best measurement kept.

As SGLang's auto_benchmark and polyserve do it: the base first, then stage by stage, nothing learnt from crashes but
that this option is out, no repeats. It begins from the best known-good configuration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.search.strategies.trace import CHECKPOINTS, Trace, begin
from benchmarks.search.surfaces.space import Assignment, Parameter
from benchmarks.search.surfaces.surface import Surface

# Options of a range that a person would write into a grid.
GRID = (0.0, 1 / 3, 2 / 3, 1.0)


@dataclass(frozen=True)
class StagedGrid:
    name: str = "staged grid"

    def search(self, surface: Surface, seed: int, launches: int, checkpoints: Sequence[int] = CHECKPOINTS) -> Trace:
        trace = begin(surface, seed)
        best: Assignment = {}
        best_value = 0.0
        for candidate in self._candidates(surface, best):
            value = trace.launch(candidate)
            if value is not None and value > best_value:
                best.clear()
                best.update(candidate)
                best_value = value
            if len(trace.launched) in checkpoints:
                trace.named[len(trace.launched)] = dict(best) or None
            if len(trace.launched) >= launches:
                break
        for checkpoint in checkpoints:  # a grid that is through early stays with its answer
            trace.named.setdefault(checkpoint, dict(best) or None)
        return trace

    def _candidates(self, surface: Surface, best: Assignment) -> Iterator[Assignment]:
        """What to launch next, around `best`, which the caller keeps up to date."""
        first = {parameter.name: _options(parameter)[0] for parameter in surface.space.parameters}
        tried: set[str] = set()

        def fresh(change: Assignment) -> Assignment | None:
            candidate = surface.space.trimmed({**first, **best, **change})
            if repr(candidate) in tried or surface.rule(candidate):
                return None
            tried.add(repr(candidate))
            return candidate

        for known in surface.known_good:
            if (candidate := fresh(known)) is not None:
                yield candidate
        for _ in range(4):
            for parameter in surface.space.parameters:
                for option in _options(parameter):
                    if (candidate := fresh({parameter.name: option})) is not None:
                        yield candidate


def _options(parameter: Parameter) -> list[Any]:
    return list(parameter.choices) if parameter.choices else sorted({parameter.at(unit) for unit in GRID})
