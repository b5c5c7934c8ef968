"""The problems: what a search is asked to find. `make(family, seed)` draws one."""

from __future__ import annotations

from benchmarks.search.surfaces.additive import additive
from benchmarks.search.surfaces.bottleneck import bottleneck
from benchmarks.search.surfaces.branches import branches
from benchmarks.search.surfaces.decoding import decoding
from benchmarks.search.surfaces.surface import Surface

FAMILIES = {"decoding": decoding, "additive": additive, "bottleneck": bottleneck, "branches": branches}


def make(family: str, seed: int) -> Surface:
    """Draw the surface of a family for a seed; its hardware, effects and crashes follow from the seed alone."""
    return FAMILIES[family](seed)
