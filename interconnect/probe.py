"""The all-reduce probe: seconds for each communication setting instead of minutes for each launch.

Every candidate is a set of environment variables and runs in fresh processes of the engine's interpreter, one a GPU:
a hang, a crash or a kill of theirs is a result (an environment failure with its remedy) and never ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import yaml

from engine.failure import Failure
from engine.knowledge import classify
from interconnect.model_shape import Layout, ModelShape, Speculation
from interconnect.probe_process import CandidateFailed, Limits, RankProcesses, environment_for
from interconnect.probe_results import ProbeResult, Ranked, SizeResult, first_third, order, rank, weights_of
from interconnect.round_trips import Collective, decoding_step, forward_pass
from interconnect.sampling import CounterSampling, NoCounters
from interconnect.traffic import mean_traffic

__all__ = ["Probe", "ProbeReport", "ProbeResult", "common_candidates", "first_third", "order", "rank", "run_probe"]

# Of a candidate's variables, those that choose another all-reduce than NCCL's.
METHOD_VARIABLE = "QUIETLANE_ALL_REDUCE"
_PCIE_IPC = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"
_P2P_REMEDY = (
    "Boot with iommu=off (or pt), switch ACS off, set uvm_disable_hmm=1; until then set NCCL_P2P_DISABLE=1 "
    "(quietlane doctor shows which)."
)


def common_candidates() -> list[dict[str, str]]:
    """The settings tried when a space names none."""
    text = resources.files("interconnect").joinpath("nccl_settings.yaml").read_text()
    return [{name: str(value) for name, value in one.items()} for one in yaml.safe_load(text)]


def method_of(candidate: Mapping[str, str]) -> str:
    """Which all-reduce a candidate uses."""
    if METHOD_VARIABLE in candidate:
        return candidate[METHOD_VARIABLE]
    return "flashinfer-pcie" if candidate.get(_PCIE_IPC) in ("1", "true", "True") else "library"


def failure_of(error: CandidateFailed, candidate: Mapping[str, str], ranks: int) -> Failure:
    """Whose fault a candidate's end is: of its setting, or of the environment."""
    phase = "imports" if error.stage in ("start", "imports") else "distributed init"
    where = "the imports" if phase == "imports" else f"the stage '{error.stage}'"
    if error.stage == "start" and not error.hung and error.status is None:
        cause = f"The engine's interpreter cannot be started: {error.evidence}"
        remedy = "Name the Python that has SGLang and torch installed (engine: interpreter in the space)."
        return Failure(None, phase, cause, "environment", remedy, error.evidence)
    if error.hung and phase == "imports":
        cause = f"The engine's interpreter had not imported torch after {error.waited_s:.0f} s."
        return Failure(
            None, phase, cause, "environment", "Try it by hand; a slow disk needs a longer limit.", error.evidence
        )
    if error.hung:
        cause = f"{where} of {ranks} ranks did not end ({error.waited_s:.0f} s after the start)."
        level = candidate.get("NCCL_P2P_LEVEL")
        if level and candidate.get("NCCL_P2P_DISABLE") != "1":
            remedy = (
                f"NCCL_P2P_LEVEL={level} may be too high for this topology: set PHB or leave it unset. {_P2P_REMEDY}"
            )
            return Failure(None, phase, f"Hang: {cause}", "configuration", remedy, error.evidence)
        if candidate.get("NCCL_P2P_DISABLE") == "1":
            remedy = "It is not P2P that hangs: look for a full /dev/shm, a firewall on the loopback, and other users."
        else:
            remedy = _P2P_REMEDY
        return Failure(None, phase, f"Hang: {cause}", "environment", remedy, error.evidence)
    if method_of(candidate) != "library":
        said = error.evidence.strip().splitlines()
        cause = f"This all-reduce cannot be used here: {said[-1] if said else 'it ended without a word'}"
        return Failure(None, phase, cause[:400], "configuration", "Leave it out of the space.", error.evidence)
    return classify(error.evidence, phase, None, error.status)


@dataclass
class Probe:
    """Runs candidates one after another on the same GPUs.

    ``gpus`` are NVML's indices; without any, two ranks meet through gloo on the CPU. ``environment`` is the engine's
    own, over ours and below the candidate's. ``hidden`` is the width of a message's rows (2 bytes an element).
    """

    interpreter: str
    gpus: Sequence[int] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    hidden: int = 4096
    cpu_ranks: int = 2
    limits: Limits = field(default_factory=Limits)
    budget_s: float = 0.2
    progress: Callable[[str], None] | None = None
    within_s: float | None = None

    @property
    def ranks(self) -> int:
        """Processes a candidate."""
        return len(self.gpus) or self.cpu_ranks

    def run(self, candidates: Sequence[Mapping[str, str]], sizes: Sequence[int]) -> list[ProbeResult]:
        """A result for each candidate, in their order; ``sizes`` are message sizes in bytes (whole rows).

        After ``within_s`` seconds no further candidate is begun, and the results are fewer.
        """
        begin = time.monotonic()
        rows = sorted({max(1, round(size / (2 * self.hidden))) for size in sizes})
        if not rows:
            raise ValueError("no message sizes; name at least one")
        results = []
        with CounterSampling(self.gpus) as sampling:
            counters = _Counted(sampling)
            for candidate in candidates:
                if self.within_s is not None and time.monotonic() - begin > self.within_s:
                    break
                result = self._one(dict(candidate), rows, counters)
                results.append(result)
                if self.progress:
                    self.progress(_line(result))
        return results

    def _one(self, candidate: dict[str, str], rows: list[int], counted: _Counted) -> ProbeResult:
        begin = time.monotonic()
        settings = {
            "world": self.ranks,
            "device": "cuda" if self.gpus else "cpu",
            "method": method_of(candidate),
            "hidden": self.hidden,
            "rows": rows,
            "budget_s": self.budget_s,
        }
        sizes: list[SizeResult] = []
        left_out: list[int] = []
        failure = None
        try:
            with RankProcesses(
                self.interpreter, environment_for(self.gpus, self.environment, candidate), settings, self.limits
            ) as ranks:
                for told in ranks.told():
                    if "ready" in told:
                        counted.start()
                        ranks.go()
                    elif "p50_us" in told:
                        sizes.append(_size(told, counted.stop(told["calls"])))
                    elif "left_out" in told:
                        left_out.append(told["left_out"])
        except CandidateFailed as error:
            failure = failure_of(error, candidate, self.ranks)
        if failure is None and not sizes:
            failure = Failure(None, "distributed init", "No message size is taken by it.", "configuration", "", "")
        return ProbeResult(candidate, self.ranks, tuple(sizes), failure, time.monotonic() - begin, tuple(left_out))


def _size(told: Mapping[str, Any], sent: float | None) -> SizeResult:
    return SizeResult(told["message_bytes"], told["p50_us"], told["p99_us"], told["bus_gb_s"], told["calls"], sent)


class _Counted:
    """PCIe bytes around a timed run, idle traffic taken off; nothing where there are no counters."""

    def __init__(self, sampling: CounterSampling, idle_s: float = 0.5) -> None:
        self._sampling: CounterSampling | None = sampling
        self._idle_per_s = 0.0
        try:
            sampling.start()
            time.sleep(idle_s)
            idle = mean_traffic(sampling.stop())
            self._idle_per_s = idle.sent_bytes / idle.seconds
        except NoCounters:
            self._sampling = None

    def start(self) -> None:
        """The run is about to begin."""
        if self._sampling is not None:
            try:
                self._sampling.start()
            except NoCounters:
                self._sampling = None

    def stop(self, calls: int) -> float | None:
        """Bytes that each GPU sent per all-reduce."""
        if self._sampling is None:
            return None
        try:
            return mean_traffic(self._sampling.stop(), self._idle_per_s).sent_bytes / calls
        except NoCounters:
            self._sampling = None
            return None


def _line(result: ProbeResult) -> str:
    if result.failure:
        return f"{result.label}: {result.failure.cause}"
    ends = result.sizes[:: max(1, len(result.sizes) - 1)]
    figures = ", ".join(f"{one.message_bytes} bytes {one.p50_us:.1f} us" for one in ends)
    return f"{result.label}: {figures} ({result.seconds:.0f} s)"


@dataclass(frozen=True)
class ProbeReport:
    """All candidates, ranked, and what the figures are of."""

    ranked: tuple[Ranked, ...]
    weights: Mapping[int, float]
    note: str

    @property
    def promising(self) -> tuple[Ranked, ...]:
        """The first third."""
        return first_third(self.ranked)

    def order(self) -> tuple[dict[str, str], ...]:
        """The candidates' variables from best to worst, without those that failed."""
        return order(self.ranked)

    def environment_failure(self) -> Failure | None:
        """Why no engine can work here; ``None`` when any candidate worked."""
        failures = [one.result.failure for one in self.ranked]
        return next((f for f in failures if f and f.blame == "environment"), None) if all(failures) else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as written in JSON."""
        return {
            "note": self.note,
            "weights": dict(self.weights),
            "candidates": [
                {"place": place, "cost": one.cost if one.cost < float("inf") else None, **one.result.as_dict()}
                for place, one in enumerate(self.ranked, 1)
            ],
        }

    def as_text(self) -> str:
        """A table for a person: best first, median microseconds and sent bytes by message size."""
        sizes = sorted({one.message_bytes for ranked in self.ranked for one in ranked.result.sizes})
        lines = [self.note, "", "place  cost   " + " ".join(f"{_short(size):>9}" for size in sizes) + "   setting"]
        for place, one in enumerate(self.ranked, 1):
            result = one.result
            if result.failure:
                lines.append(
                    f"{place:>5}  failed {result.label}: {result.failure.cause} {result.failure.remedy}".rstrip()
                )
                continue
            times = {size.message_bytes: f"{size.p50_us:.1f} us" for size in result.sizes}
            row = " ".join(f"{times.get(size, '-'):>9}" for size in sizes)
            lines.append(f"{place:>5}  {one.cost:5.2f}  {row}   {result.label}")
        return "\n".join(lines) + "\n"


def _short(size: int) -> str:
    return f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size / 2**10:g} KiB" if size >= 2**10 else f"{size} B"


def loads(
    shape: ModelShape,
    layout: Layout,
    concurrencies: Sequence[int],
    speculation: Speculation | None = None,
    chunk_rows: int | None = 2048,
) -> list[tuple[Collective, ...]]:
    """The steps whose message sizes are probed: decoding at each concurrency, and one chunk of a prompt."""
    steps = [decoding_step(shape, layout, concurrency, speculation) for concurrency in concurrencies]
    if chunk_rows:
        steps.append(forward_pass(shape, layout, chunk_rows, logits_rows=1))
    return steps


def run_probe(
    interpreter: str,
    gpus: Sequence[int],
    candidates: Sequence[Mapping[str, str]] | None = None,
    *,
    shape: ModelShape,
    concurrencies: Sequence[int] = (1, 8, 32),
    speculation: Speculation | None = None,
    chunk_rows: int | None = 2048,
    environment: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    cpu_ranks: int = 2,
    progress: Callable[[str], None] | None = None,
    within_s: float | None = None,
) -> ProbeReport:
    """Probe the model's message sizes with every candidate and rank them. Never raises for what a candidate does.

    After ``within_s`` seconds no further candidate is begun; the note says how many were left.
    """
    ranks = len(gpus) or cpu_ranks
    steps = loads(shape, Layout(ranks), concurrencies, speculation, chunk_rows)
    weights = weights_of(steps)
    probe = Probe(
        interpreter,
        gpus,
        environment or {},
        shape.hidden,
        cpu_ranks,
        limits or Limits(),
        progress=progress,
        within_s=within_s,
    )
    tried = common_candidates() if candidates is None else candidates
    note = (
        f"all-reduce of {ranks} GPUs ({', '.join(map(str, gpus))}) in CUDA graphs, median of each message size"
        if gpus
        else f"no GPU here: {ranks} processes met through gloo on the CPU, which says nothing about PCIe"
    )
    results = probe.run(tried, list(weights))
    if len(results) < len(tried):
        note += f"; {len(tried) - len(results)} of {len(tried)} settings were left for lack of time"
    return ProbeReport(tuple(rank(results, weights)), weights, note)
