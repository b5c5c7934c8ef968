"""Families of settings that hide their worth: each method has settings of its own, and untuned it loses."""

from __future__ import annotations

import numpy as np

from benchmarks.search.surfaces.space import Assignment, SurfaceSpace, choice, count, number
from benchmarks.search.surfaces.surface import Surface, modest
from benchmarks.search.surfaces.traps import draw

METHODS = ("none", "draft_model", "heads", "lookahead")
BACKENDS = ("plain", "fused", "paged")
SPACE = SurfaceSpace(
    (
        choice("method", *METHODS),
        count("draft_steps", 1, 8, when={"method": ("draft_model",)}),
        choice("draft_top_k", 1, 2, 4, 8, when={"method": ("draft_model",)}),
        choice("draft_backend", "eager", "graph", "compiled", when={"method": ("draft_model",)}),
        count("heads_depth", 1, 6, when={"method": ("heads",)}),
        choice("heads_tree", "chain", "narrow", "wide", when={"method": ("heads",)}),
        number("heads_threshold", 0.01, 0.9, log=True, when={"method": ("heads",)}),
        count("window", 2, 16, when={"method": ("lookahead",)}),
        count("ngram", 2, 8, when={"method": ("lookahead",)}),
        choice("backend", *BACKENDS),
        choice("fused_tile", 16, 32, 64, 128, when={"backend": ("fused",)}),
        choice("fused_stages", 2, 3, 4, when={"backend": ("fused",)}),
        choice("page", 1, 16, 64, when={"backend": ("paged",)}),
        choice("split", 1, 2, 4, 8, 16, when={"backend": ("paged",)}),
        choice("reduce", "ring", "tree", "direct"),
        choice("direct_kib", 32, 128, 512, 2048, when={"reduce": ("direct",)}),
        count("batch", 8, 128, log=True),
        number("memory", 0.7, 0.95),
        choice("graphs", True, False),
        choice("weights", "fp8", "fp4", "bf16"),
        choice("overlap", True, False),
        count("prefill", 1024, 16384, log=True),
    )
)


def branches(seed: int) -> Surface:
    rng = np.random.default_rng([seed, 3])
    by_name = {parameter.name: parameter for parameter in SPACE.parameters}
    # A branch costs at the start (up to 25 %) and pays up to 60 % when its settings are right together.
    cost = {value: float(rng.uniform(0.05, 0.25)) for value in (*METHODS[1:], *BACKENDS[1:], "direct")}
    worth = {value: float(rng.uniform(0.1, 0.55)) for value in cost}
    right = {p.name: float(rng.uniform()) for p in SPACE.parameters}
    sharp = {p.name: float(rng.uniform(1.0, 3.0)) for p in SPACE.parameters}
    plain = {p.name: float(rng.exponential(0.05)) for p in SPACE.parameters if not p.when}
    draws = {p.name: rng.normal(size=8) for p in SPACE.parameters}

    def fit(name: str, value: object) -> float:
        """1 where the setting is right for its branch, falling to about a third away from it."""
        if by_name[name].choices and not isinstance(by_name[name].choices[0], int):
            ranked = np.argsort(np.argsort(draws[name][: len(by_name[name].choices)]))
            away = 1.0 - ranked[by_name[name].choices.index(value)] / (len(ranked) - 1)
        else:
            away = abs(by_name[name].position(value) - right[name])
        return float(np.exp(-sharp[name] * away**2))

    def speed(assignment: Assignment) -> float:
        total = 0.0
        for parent in ("method", "backend", "reduce"):
            value = assignment[parent]
            if value in cost:
                children = [p.name for p in SPACE.parameters if p.when.get(parent) == (value,)]
                total += worth[value] * float(np.prod([fit(c, assignment[c]) for c in children])) - cost[value]
        for name, size in plain.items():
            total += size * (fit(name, assignment[name]) - 0.5)
        if assignment["method"] != "none":  # a larger batch eats what speculation gains
            total -= 0.15 * by_name["batch"].position(assignment["batch"])
        return float(80.0 * np.exp(total))

    traps = draw(SPACE, rng, pairs=7, triples=3, corners=3, thresholds=1, memory=2, loose=0.62)
    known = modest(SPACE, lambda a: 0.0 if traps(a) else speed(a), rng, 2)
    return Surface("branches", seed, SPACE, speed, traps, known)
