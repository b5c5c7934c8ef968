"""Decoding of a large mixture of experts on eight GPUs over PCIe, by physics, with a machine drawn at random.

The model has the shape of Qwen3.5-397B-A17B in NVFP4 (60 layers, 512 experts, 10 active and 1 shared, hidden 4096, one
multi-token-prediction layer). A step reads weights (the dense part, and the experts that its rows touch), recurrent
state and KV cache, pays for launching kernels, does two all-reduces a layer, and verifies what was drafted.

Calibrated on: all-reduce of 8 to 32 KiB between 5 us (direct over PCIe) and 13 to 200 us (NCCL, tuned or not);
acceptance 0.85, 0.67, 0.51, 0.36, 0.31 by position; 75 to 125 tok/s badly set and 275 to 350 tok/s well set for one
request on eight cards (community reports of 2026 for boxes of RTX PRO 6000). The figure searched is the geometric mean
of tok/s at 1, 8 and 32 requests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.search.surfaces.space import Assignment, SurfaceSpace, choice, count, number
from benchmarks.search.surfaces.surface import Surface, modest

LAYERS, HIDDEN, EXPERTS, ACTIVE = 60, 4096, 512, 10
EXPERT_BYTES = 217e9 / EXPERTS
DENSE_BYTES = 14e9 + 2e9
STATE_BYTES = 189e6  # recurrent state of one request, fp32, all layers
KV_BYTES = 15 * 2 * 2 * 256  # one token, one byte a value
CONTEXT = 6000
CONCURRENCY = (1, 8, 32)
GPU_MEMORY = 95e9

SPACE = SurfaceSpace(
    (
        choice("layout", "tp8", "tp4pp2", "tp4dp2"),
        choice("speculation", "off", "mtp"),
        count("steps", 1, 6, when={"speculation": ("mtp",)}),
        choice("top_k", 1, 2, 4, when={"speculation": ("mtp",)}),
        choice("draft_attention", "same", "triton", when={"speculation": ("mtp",)}),
        choice("moe", "flashinfer_cutlass", "marlin", "triton", "cutlass"),
        choice("gemm", "flashinfer_cutlass", "flashinfer_cudnn", "marlin"),
        choice("attention", "flashinfer", "triton"),
        choice("all_reduce", "nccl", "pcie_ipc"),
        choice("ipc_kib", 64, 256, 1024, 4096, when={"all_reduce": ("pcie_ipc",)}),
        choice("p2p_level", "unset", "PHB", "SYS"),
        choice("protocol", "unset", "LL", "LL128", "Simple"),
        choice("algorithm", "unset", "Ring", "Tree"),
        choice("min_channels", "unset", 4, 8, 16),
        choice("cumem", True, False),
        choice("state_dtype", "float32", "bfloat16"),
        choice("running", 8, 16, 32, 48, 64),
        number("memory", 0.78, 0.95),
        choice("page", 1, 16, 64),
        choice("overlap", True, False),
        choice("graphs", "full", "small", "off"),
        count("prefill", 1024, 16384, log=True),
    )
)


@dataclass(frozen=True)
class Machine:
    """A host: rates in bytes/s, times in seconds."""

    memory_rate: float
    p2p_latency: float
    staged_latency: float
    link_rate: float
    cross_socket: float  # how much slower messages are across sockets
    launch: float  # host time of a kernel
    nccl_default: float  # how badly NCCL's own choice suits this host
    kernels: dict[str, float]
    bad_pairs: tuple[tuple[tuple[str, object], tuple[str, object]], ...]
    acceptance: float
    graph_bytes: float


PLAUSIBLE_FAULTS: tuple[tuple[tuple[str, object], tuple[str, object]], ...] = (
    (("moe", "cutlass"), ("gemm", "marlin")),
    (("moe", "triton"), ("overlap", True)),
    (("moe", "marlin"), ("layout", "tp4dp2")),
    (("gemm", "flashinfer_cudnn"), ("graphs", "full")),
    (("attention", "flashinfer"), ("page", 1)),
    (("attention", "triton"), ("page", 64)),
    (("top_k", 4), ("attention", "flashinfer")),
    (("top_k", 2), ("page", 64)),
    (("layout", "tp4pp2"), ("speculation", "mtp")),
    (("all_reduce", "pcie_ipc"), ("layout", "tp4pp2")),
    (("all_reduce", "pcie_ipc"), ("cumem", True)),
    (("protocol", "LL128"), ("p2p_level", "SYS")),
    (("algorithm", "Tree"), ("protocol", "Simple")),
    (("min_channels", 16), ("cumem", False)),
    (("p2p_level", "SYS"), ("cumem", True)),
    (("draft_attention", "triton"), ("moe", "cutlass")),
    (("state_dtype", "bfloat16"), ("speculation", "mtp")),
    (("graphs", "off"), ("overlap", True)),
)


def decoding(seed: int) -> Surface:
    rng = np.random.default_rng([seed, 4])
    machine = _machine(rng)

    def speed(assignment: Assignment) -> float:
        rates = [_throughput(assignment, machine, requests) for requests in CONCURRENCY]
        return float(np.exp(np.mean(np.log(rates))))

    def crash(assignment: Assignment) -> str | None:
        for (first, one), (second, other) in machine.bad_pairs:
            if assignment.get(first) == one and assignment.get(second) == other:
                return f"{first} {one} does not go with {second} {other}"
        return _out_of_memory(assignment, machine)

    def rule(assignment: Assignment) -> str | None:
        if assignment["overlap"] and assignment["layout"] == "tp4pp2":
            return "pipeline parallelism runs without the overlap schedule"
        return None

    known = modest(SPACE, lambda a: 0.0 if rule(a) or crash(a) else speed(a), rng, 3)
    return Surface("decoding", seed, SPACE, speed, crash, known, rule)


def _machine(rng: np.random.Generator) -> Machine:
    kernels = {}
    for name, spread in (("moe", 0.25), ("gemm", 0.12), ("attention", 0.1)):
        choices = next(p for p in SPACE.parameters if p.name == name).choices
        for value in choices:
            kernels[f"{name}={value}"] = float(np.exp(abs(rng.normal(0.0, spread))))
    faults = rng.permutation(len(PLAUSIBLE_FAULTS))[: int(rng.integers(4, 8))]
    return Machine(
        memory_rate=float(rng.uniform(1.3e12, 1.75e12)) * float(rng.uniform(0.6, 0.85)),
        p2p_latency=float(rng.uniform(0.4e-6, 1.0e-6)),
        staged_latency=float(rng.uniform(4e-6, 14e-6)),
        link_rate=float(rng.uniform(20e9, 50e9)),
        cross_socket=float(rng.choice([1.0, 1.4, 2.2])),
        launch=float(rng.uniform(3e-6, 7e-6)),
        nccl_default=float(rng.uniform(1.0, 4.0)),
        kernels=kernels,
        bad_pairs=tuple(PLAUSIBLE_FAULTS[i] for i in faults),
        acceptance=float(rng.uniform(0.7, 0.9)),
        graph_bytes=float(rng.uniform(1.5e9, 4e9)),
    )


def _all_reduce_s(assignment: Assignment, machine: Machine, size: float, width: int) -> float:
    """Seconds of one all-reduce of `size` bytes among `width` GPUs."""
    far = machine.cross_socket if width == 8 else 1.0
    if assignment["all_reduce"] == "pcie_ipc" and size <= assignment["ipc_kib"] * 1024:
        crowd = 1.0 + 0.12 * math.log2(assignment["ipc_kib"] / 64.0)
        return 3e-6 * far + machine.p2p_latency * width * crowd + size * (width - 1) / (machine.link_rate * 2.0) * far
    level, protocol, algorithm = assignment["p2p_level"], assignment["protocol"], assignment["algorithm"]
    direct = level == "SYS" or (level == "PHB" and far == 1.0) or (level == "unset" and far < 1.2)
    hop = machine.p2p_latency * 2.2 if direct else machine.staged_latency
    rate = machine.link_rate * (1.0 if direct else 0.45)
    small = size < 256e3
    if protocol == "unset":
        hop, rate = hop * machine.nccl_default, rate * (0.9 if small else 0.7)
    elif protocol == "LL":
        rate *= 0.5
    elif protocol == "LL128":
        hop, rate = hop * 1.25, rate * 0.9
    else:
        hop *= 3.0
    tree = algorithm == "Tree" or (algorithm == "unset" and small and machine.nccl_default < 2.0)
    rounds = 2.0 * math.log2(width) if tree else 2.0 * (width - 1)
    channels = 2 if assignment["min_channels"] == "unset" else assignment["min_channels"]
    rate *= min(1.0, 0.4 + 0.1 * channels) * (0.8 if tree else 1.0)
    hop *= 1.0 + 0.015 * channels
    return 6e-6 + rounds * hop * far + 2.0 * (width - 1) / width * size / rate * far


def _throughput(assignment: Assignment, machine: Machine, requests: int) -> float:
    """Tokens a second with `requests` requests in flight."""
    layout = assignment["layout"]
    width = 8 if layout == "tp8" else 4
    at_once = min(requests, assignment["running"])
    waiting = requests / at_once
    batch = math.ceil(at_once / 2) if layout == "tp4dp2" else at_once
    speculates = assignment["speculation"] == "mtp"
    steps, top_k = (assignment["steps"], assignment["top_k"]) if speculates else (0, 1)
    drafted = 1 + steps * top_k if speculates else 1
    rows = batch * drafted
    kernels = machine.kernels
    slow_moe, slow_gemm, slow_attention = (kernels[f"{n}={assignment[n]}"] for n in ("moe", "gemm", "attention"))
    if rows > 64 and assignment["moe"] in ("marlin", "triton"):
        slow_moe *= 1.25
    touched = 1.0 - (1.0 - ACTIVE / EXPERTS) ** rows
    experts = touched * EXPERTS * EXPERT_BYTES / width / machine.memory_rate * slow_moe
    dense = DENSE_BYTES / width / machine.memory_rate * slow_gemm
    state = STATE_BYTES * (0.5 if assignment["state_dtype"] == "bfloat16" else 1.0)
    paging = {1: 1.12, 16: 1.0, 64: 0.98}[assignment["page"]]
    cache = batch * (state * 2 + CONTEXT * KV_BYTES * paging) / width / machine.memory_rate * slow_attention
    compute = rows * 34e9 / width / 2.5e14 * slow_gemm
    covered = {"full": True, "small": rows <= 32, "off": False}[assignment["graphs"]]
    host = LAYERS * (11 * machine.launch if not covered else 14e-6)
    gpu = max(experts + dense, compute) + cache
    wire = (2 * LAYERS + 1) * _all_reduce_s(assignment, machine, rows * HIDDEN * 2.0, width)
    tokens = 1.0
    extra = 0.0
    if speculates:
        survives = 1.0
        for position in range(steps):
            survives *= min(0.97, (machine.acceptance + 0.05 * math.log2(top_k)) * (1.0 - 0.045 * position))
            tokens += survives
        draft = 0.022 * (gpu + host) * (1.25 if assignment["draft_attention"] == "triton" else 1.0)
        extra = steps * (draft + 3 * _all_reduce_s(assignment, machine, batch * top_k * HIDDEN * 2.0, width))
        extra += 0.35e-3 + (0.0 if top_k == 1 else 0.3e-3)
    step = gpu + host * (0.4 if covered else 1.0) + wire + extra
    scheduling = 0.35e-3 + 12e-6 * batch
    step += 0.15 * scheduling if assignment["overlap"] else scheduling
    step *= 1.0 - 0.01 * assignment["cumem"]
    step *= 1.0 + 0.02 * abs(math.log2(assignment["prefill"] / 4096.0)) * (requests / 32) + 0.02 * (requests / 32)
    replicas = 2 if layout == "tp4dp2" and requests > 1 else 1
    stages = 1.15 if layout == "tp4pp2" else 1.0
    room = 1.0 + 0.05 * (assignment["memory"] - 0.78) / 0.17 * (requests / 32)
    return batch * replicas * tokens / (step * stages) / waiting**0.15 * room * (at_once / (batch * replicas))


def _out_of_memory(assignment: Assignment, machine: Machine) -> str | None:
    """Weights, state slots (times drafted tokens), graphs and buffers against the share that the engine may take."""
    layout = assignment["layout"]
    width = 4 if layout == "tp4dp2" else 8
    speculates = assignment["speculation"] == "mtp"
    drafted = 1 + assignment["steps"] * assignment["top_k"] if speculates else 1
    slot = STATE_BYTES / width * (0.5 if assignment["state_dtype"] == "bfloat16" else 1.0)
    running = assignment["running"] / (2 if layout == "tp4dp2" else 1)
    weights = (EXPERT_BYTES * EXPERTS + DENSE_BYTES) / width
    states = slot * running * (2 + (drafted if speculates else 0))
    cache = running * CONTEXT * KV_BYTES / width * 2
    if weights + states + cache > assignment["memory"] * GPU_MEMORY:
        return "the state cache does not fit in the static share"
    graphs = {"full": 1.0, "small": 0.45, "off": 0.0}[assignment["graphs"]] * machine.graph_bytes
    channels = 2 if assignment["min_channels"] == "unset" else assignment["min_channels"]
    buffers = channels * 8 * 12e6 + 2.5e9 + assignment["prefill"] * 1.6e5 * (1.6 if speculates else 1.0)
    if graphs + buffers > (1.0 - assignment["memory"]) * GPU_MEMORY * 1.15:
        return "out of memory while capturing graphs or at prefill"
    return None
