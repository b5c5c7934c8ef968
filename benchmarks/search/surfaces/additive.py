"""Effects that nearly add on the logarithm: a few large, many small, some pairs; about half of random picks crash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.search.surfaces.space import Assignment, Parameter, SurfaceSpace, choice, count, number
from benchmarks.search.surfaces.surface import Surface, modest
from benchmarks.search.surfaces.traps import draw

SPACE = SurfaceSpace(
    (
        choice("attention", "flash", "triton", "torch"),
        choice("moe", "cutlass", "triton", "marlin", "auto"),
        choice("gemm", "cutlass", "cudnn", "auto"),
        choice("speculation", "off", "ngram", "draft"),
        count("steps", 1, 6, when={"speculation": ("draft",)}),
        choice("top_k", 1, 2, 4, 8, when={"speculation": ("draft",)}),
        count("window", 4, 32, log=True, when={"speculation": ("ngram",)}),
        choice("p2p_level", "unset", "PHB", "SYS"),
        choice("protocol", "unset", "LL", "LL128", "Simple"),
        choice("channels", "unset", 4, 8, 16),
        choice("algorithm", "unset", "Ring", "Tree"),
        choice("all_reduce", "nccl", "oneshot", "twoshot"),
        choice("one_shot_limit", 64, 128, 256, 512, when={"all_reduce": ("oneshot", "twoshot")}),
        number("memory", 0.70, 0.94),
        count("batch", 4, 128, log=True),
        count("prefill", 1024, 16384, log=True),
        choice("page", 1, 16, 64),
        choice("graphs", True, False),
        choice("overlap", True, False),
        choice("cache_type", "fp16", "fp8"),
        choice("schedule", "fcfs", "lpm", "lof"),
        count("threads", 1, 9, step=2),
    )
)


def additive(seed: int) -> Surface:
    rng = np.random.default_rng([seed, 1])
    effects = {parameter.name: _effect(parameter, rng) for parameter in SPACE.parameters}
    names = [parameter.name for parameter in SPACE.parameters]
    pairs = []
    for _ in range(10):
        first, second = (int(i) for i in rng.permutation(len(names))[:2])
        size = float(rng.exponential(0.025))
        table = rng.normal(0.0, size, size=(16, 16))
        pairs.append((SPACE.parameters[first], SPACE.parameters[second], table))

    def speed(assignment: Assignment) -> float:
        total = sum(effects[name](value) for name, value in assignment.items())
        for first, second, table in pairs:
            if first.name in assignment and second.name in assignment:
                i, j = (int(7.99 * p.position(assignment[p.name])) for p in (first, second))
                total += table[i, j]
        return float(100.0 * np.exp(total))

    traps = draw(SPACE, rng, pairs=3, corners=2, thresholds=1, memory=1, loose=0.72)
    known = modest(SPACE, lambda a: 0.0 if traps(a) else speed(a), rng, 3)
    return Surface("additive", seed, SPACE, speed, traps, known)


def _effect(parameter: Parameter, rng: np.random.Generator) -> Callable[[object], float]:
    """A draw for each choice, or a smooth hump or slope over a range; sizes are heavy-tailed: most below 2 %."""
    size = float(min(0.25, 0.02 * np.exp(rng.normal(0.3, 1.1))))
    if parameter.choices:
        draws = {
            choice_: float(draw_)
            for choice_, draw_ in zip(parameter.choices, rng.normal(0, size, len(parameter.choices)), strict=True)
        }
        if all(isinstance(c, int) and not isinstance(c, bool) for c in parameter.choices):
            best, bend = rng.uniform(), rng.uniform(1.0, 3.0)
            return lambda value: float(0.3 * draws[value] - bend * size * (parameter.position(value) - best) ** 2)
        return lambda value: draws[value]
    best, bend = rng.uniform(-0.2, 1.2), rng.uniform(1.0, 4.0)
    return lambda value: float(-bend * size * (parameter.position(value) - best) ** 2)
