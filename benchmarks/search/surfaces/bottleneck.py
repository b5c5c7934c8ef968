"""Time a token is the larger of compute and memory, plus communication; one backend pays only with three others."""

from __future__ import annotations

import numpy as np

from benchmarks.search.surfaces.space import Assignment, SurfaceSpace, choice, count, number
from benchmarks.search.surfaces.surface import Surface, modest
from benchmarks.search.surfaces.traps import draw

SPACE = SurfaceSpace(
    (
        choice("attention", "a0", "a1", "a2"),
        choice("moe", "m0", "m1", "m2", "m3"),
        choice("gemm", "g0", "g1", "g2"),
        choice("layout", "row", "column", "tiled"),
        choice("speculation", "off", "on"),
        count("steps", 1, 7, when={"speculation": ("on",)}),
        choice("top_k", 1, 2, 4, when={"speculation": ("on",)}),
        choice("draft_precision", "bf16", "fp8", when={"speculation": ("on",)}),
        choice("parallel", "tp8", "tp4pp2", "tp4dp2"),
        choice("reduce", "nccl", "direct", "staged"),
        choice("direct_kib", 32, 64, 128, 256, when={"reduce": ("direct",)}),
        choice("channels", 2, 4, 8, 16),
        choice("protocol", "unset", "LL", "Simple"),
        choice("p2p", True, False),
        choice("cache_type", "bf16", "fp8"),
        choice("page", 1, 16, 64),
        count("batch", 4, 64, log=True),
        number("memory", 0.7, 0.94),
        choice("graphs", True, False),
        choice("overlap", True, False),
        count("prefill", 1024, 16384, log=True),
    )
)


def bottleneck(seed: int) -> Surface:
    rng = np.random.default_rng([seed, 2])
    by_name = {parameter.name: parameter for parameter in SPACE.parameters}

    def factors(name: str, spread: float) -> dict[object, float]:
        """How much longer each choice takes; the fastest takes 1."""
        draws = np.exp(np.abs(rng.normal(0.0, spread, len(by_name[name].choices))))
        return dict(zip(by_name[name].choices, draws / draws.min(), strict=True))

    compute = {
        n: factors(n, s)
        for n, s in (("attention", 0.2), ("moe", 0.35), ("gemm", 0.25), ("overlap", 0.15), ("graphs", 0.4))
    }
    memory = {n: factors(n, s) for n, s in (("cache_type", 0.3), ("page", 0.15), ("layout", 0.2), ("moe", 0.2))}
    wire = {
        n: factors(n, s)
        for n, s in (("reduce", 0.5), ("channels", 0.3), ("protocol", 0.4), ("p2p", 0.5), ("parallel", 0.4))
    }
    direct = factors("direct_kib", 0.4)
    base_compute, base_memory, base_wire = rng.uniform(2.5, 6.0), rng.uniform(2.5, 6.0), rng.uniform(1.0, 5.0)
    accepted, saturation = rng.uniform(0.6, 0.92), rng.uniform(0.05, 0.2)
    draft_cost = rng.uniform(0.04, 0.16)
    best_prefill, best_batch = rng.uniform(), rng.uniform()
    needle = {n: by_name[n].sample(rng) for n in ("moe", "gemm", "layout", "protocol")}
    needle_gain = rng.uniform(0.55, 0.75)

    def speed(assignment: Assignment) -> float:
        c = base_compute * float(np.prod([table[assignment[n]] for n, table in compute.items()]))
        m = base_memory * float(np.prod([table[assignment[n]] for n, table in memory.items()]))
        w = base_wire * float(np.prod([table[assignment[n]] for n, table in wire.items()]))
        if assignment["reduce"] == "direct":
            w *= 0.5 * direct[assignment["direct_kib"]]
        if all(assignment[n] == v for n, v in needle.items()):
            c *= needle_gain
            m *= needle_gain
        if not assignment["overlap"]:
            w *= 1.2
        tokens = 1.0
        if assignment["speculation"] == "on":
            steps, width = assignment["steps"], assignment["top_k"]
            hit = accepted + 0.03 * np.log2(width) - (0.05 if assignment["draft_precision"] == "fp8" else 0.0)
            position, survives = 0, 1.0
            while position < steps:
                survives *= max(0.0, hit - saturation * position)
                tokens += survives
                position += 1
            c *= 1.0 + 0.05 * steps * width
            w *= 1.0 + 0.08 * steps
            m *= 1.0 + draft_cost * steps * (0.7 if assignment["draft_precision"] == "fp8" else 1.0)
        batch = by_name["batch"].position(assignment["batch"])
        filling = 1.0 - 0.5 * (batch - best_batch) ** 2
        prefill = 1.0 - 0.12 * (by_name["prefill"].position(assignment["prefill"]) - best_prefill) ** 2
        room = 1.0 + 0.06 * by_name["memory"].position(assignment["memory"])
        return float(1000.0 * tokens * filling * prefill * room / (max(c, m) + w))

    traps = draw(SPACE, rng, pairs=4, triples=3, corners=2, thresholds=1, memory=1, loose=0.68)
    known = modest(SPACE, lambda a: 0.0 if traps(a) else speed(a), rng, 3)
    return Surface("bottleneck", seed, SPACE, speed, traps, known)
