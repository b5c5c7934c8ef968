"""One rank of the all-reduce probe; runs in the engine's interpreter, started by :mod:`interconnect.probe_process`.

    probe_child.py '{"rank": 0, "world": 2, "parent": 123, "rendezvous": "file:///...", "device": "cuda",
                     "method": "library", "hidden": 4096, "rows": [1, 8], "budget_s": 0.2}'

Rank 0 tells on standard output, in lines that begin with ``probe:`` and go on in JSON, which stage it has reached and
each message size's figures; before each timed run it waits for a line on standard input, so that counters can be read
around it. Torch only, and, for methods of SGLang's, SGLang.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import itertools
import json
import os
import signal
import sys
import time
from typing import Any

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
# All-reduces in one CUDA graph (fewer of large ones), and how often it is replayed at least and at most.
_IN_A_GRAPH = 20
_LARGE = 2**20
_REPLAYS = (20, 400)


def tell(rank: int, **values: Any) -> None:
    """A line for the parent, of rank 0 only."""
    if rank == 0:
        print("probe:" + json.dumps(values), flush=True)


def stay_with(parent: int) -> None:
    """The kernel ends this process when the prober ends, whatever ends it."""
    ctypes.CDLL(None, use_errno=True).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Library:
    """The all-reduce of torch.distributed: NCCL on GPUs, gloo on a CPU."""

    def __init__(self, torch: Any, dist: Any, control: Any, settings: dict[str, Any]) -> None:
        self.torch, self.dist, self.control, self.settings = torch, dist, control, settings
        self.device = f"cuda:{settings['rank']}" if settings["device"] == "cuda" else "cpu"

    def tensor(self, rows: int) -> Any:
        """Where the message lies."""
        return self.torch.zeros(rows, self.settings["hidden"], dtype=self.torch.bfloat16, device=self.device)

    def __call__(self, tensor: Any) -> Any:
        """Sum over the ranks; the result."""
        self.dist.all_reduce(tensor)
        return tensor

    def capturing(self) -> Any:
        """Around the capture of a graph."""
        return contextlib.nullcontext()


class Symmetric(Library):
    """Torch's symmetric memory, one shot (each reads all) or two (each sums a part); no multicast."""

    two_shots = False

    def tensor(self, rows: int) -> Any:
        """A tensor that every rank can reach."""
        from torch.distributed import _symmetric_memory  # noqa: PLC0415

        made = _symmetric_memory.empty(rows, self.settings["hidden"], dtype=self.torch.bfloat16, device=self.device)
        _symmetric_memory.rendezvous(made, self.dist.group.WORLD.group_name)
        return made.zero_()

    def __call__(self, tensor: Any) -> Any:
        """Sum over the ranks; the result."""
        name = self.dist.group.WORLD.group_name
        if self.two_shots:
            return self.torch.ops.symm_mem.two_shot_all_reduce_(tensor, "sum", name)
        return self.torch.ops.symm_mem.one_shot_all_reduce(tensor, "sum", name)


class SymmetricTwoShots(Symmetric):
    """See :class:`Symmetric`."""

    two_shots = True


class Custom(Library):
    """SGLang's custom all-reduce."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce  # noqa: PLC0415

        self.made = CustomAllreduce(group=self.control, device=self.torch.device(self.device))
        if self.made.disabled:
            raise RuntimeError("SGLang's custom all-reduce is disabled on these GPUs")

    def __call__(self, tensor: Any) -> Any:
        """Sum over the ranks; the result."""
        result = self.made.custom_all_reduce(tensor)
        if result is None:
            raise Unsupported("SGLang's custom all-reduce does not take this size")
        return result

    def capturing(self) -> Any:
        """Registers the graph's buffers with the other ranks."""
        return self.made.capture()


class PcieIpc(Library):
    """FlashInfer's PCIe all-reduce, through SGLang."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        from sglang.srt.distributed.device_communicators.pcie_ipc_ar import PcieIpcCommunicator  # noqa: PLC0415

        group = self.dist.group.WORLD
        self.made = PcieIpcCommunicator(group, self.torch.device(self.device), cpu_group=self.control)
        hidden = self.settings["hidden"]
        decode = [rows for rows in self.settings["rows"] if rows * hidden * 2 <= _LARGE] or [1]
        self.made.prepare(hidden=hidden, max_rows=max(decode))
        if self.made.disabled:
            raise RuntimeError("FlashInfer's PCIe all-reduce is not available on these GPUs")

    def __call__(self, tensor: Any) -> Any:
        """Sum over the ranks; the result."""
        if not self.made.should_pcie_ipc_ar(tensor):
            raise Unsupported("FlashInfer's PCIe all-reduce does not take this size")
        return self.made.pcie_ipc_all_reduce(tensor)


METHODS = {
    "library": Library,
    "symmetric-one-shot": Symmetric,
    "symmetric-two-shots": SymmetricTwoShots,
    "sglang-custom": Custom,
    "flashinfer-pcie": PcieIpc,
}


class Unsupported(Exception):
    """This method does not do this size; the size is left out."""


def check(reduce: Library, rows: int) -> None:
    """One all-reduce of known numbers."""
    tensor = reduce.tensor(rows)
    tensor.fill_(float(reduce.settings["rank"] + 1))
    result = reduce(tensor)
    world = reduce.settings["world"]
    expected = world * (world + 1) / 2
    got = float(result.reshape(-1)[-1].item())
    if got != expected:
        raise RuntimeError(f"wrong sum: an all-reduce over {world} ranks gave {got:g} instead of {expected:g}")


def graph_times(reduce: Library, rows: int, budget_s: float) -> tuple[int, Any]:
    """(all-reduces a run, what runs them all and returns the seconds of each replay), replays of a CUDA graph."""
    torch, settings = reduce.torch, reduce.settings
    size = rows * settings["hidden"] * 2
    calls = _IN_A_GRAPH if size < _LARGE else 4
    tensor = reduce.tensor(rows)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            reduce(tensor)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with (
        reduce.capturing(),
        torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
    ):
        for _ in range(calls):
            reduce(tensor)

    def replay(times: int) -> list[float]:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
        with torch.cuda.stream(stream):
            marks[0].record()
            for mark in marks[1:]:
                graph.replay()
                mark.record()
        stream.synchronize()
        return [one.elapsed_time(other) / 1e3 for one, other in itertools.pairwise(marks)]

    replay(5)
    times = agreed(reduce, budget_s / max(min(replay(3)), 1e-6))
    return calls, lambda: replay(times)


def plain_times(reduce: Library, rows: int, budget_s: float) -> tuple[int, Any]:
    """The same without graphs, for a CPU: each run is one all-reduce."""
    tensor = reduce.tensor(rows)

    def repeat(times: int) -> list[float]:
        seconds = []
        for _ in range(times):
            begin = time.perf_counter()
            reduce(tensor)
            seconds.append(time.perf_counter() - begin)
        return seconds

    repeat(2)
    times = agreed(reduce, budget_s / max(min(repeat(3)), 1e-6))
    return 1, lambda: repeat(times)


def agreed(reduce: Library, wish: float) -> int:
    """How many replays all ranks will do: what rank 0 wishes, within bounds."""
    box = [min(max(int(wish), _REPLAYS[0]), _REPLAYS[1])]
    reduce.dist.broadcast_object_list(box, src=0, group=reduce.control)
    return int(box[0])


def figures(seconds: list[float], calls: int, message_bytes: int, world: int) -> dict[str, float]:
    """Median and 99th percentile of one all-reduce in microseconds, and bus bandwidth in GB/s as nccl-tests has it."""
    ordered = sorted(one / calls for one in seconds)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.50, 0.99))
    return {
        "message_bytes": message_bytes,
        "p50_us": p50 * 1e6,
        "p99_us": p99 * 1e6,
        "bus_gb_s": message_bytes / p50 * 2 * (world - 1) / world / 1e9,
        "calls": len(seconds) * calls,
        "seconds": sum(seconds),
    }


def probe(settings: dict[str, Any]) -> None:
    """All message sizes of one candidate."""
    rank, world = settings["rank"], settings["world"]
    tell(rank, stage="imports")
    import torch  # noqa: PLC0415 - takes seconds, and the parent wants to know
    import torch.distributed as dist  # noqa: PLC0415

    on_gpu = settings["device"] == "cuda"
    tell(rank, stage="distributed init")
    given: dict[str, Any] = {}
    if on_gpu:
        torch.cuda.set_device(rank)
        given["device_id"] = torch.device(f"cuda:{rank}")
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=settings["rendezvous"],
        rank=rank,
        world_size=world,
        timeout=datetime.timedelta(minutes=10),
        **given,
    )
    control = dist.new_group(backend="gloo") if on_gpu else dist.group.WORLD
    tell(rank, stage="first all-reduce")
    reduce = METHODS[settings["method"]](torch, dist, control, settings)
    check(reduce, min(settings["rows"]))
    for rows in settings["rows"]:
        message = rows * settings["hidden"] * 2
        tell(rank, stage=f"{message} bytes")
        try:
            prepare = graph_times if on_gpu else plain_times
            calls, timed = prepare(reduce, rows, settings["budget_s"])
        except Unsupported as why:
            tell(rank, left_out=message, why=str(why))
            continue
        dist.barrier(group=control)
        tell(rank, ready=message)
        if rank == 0:
            sys.stdin.readline()
        dist.barrier(group=control)
        seconds = timed()
        dist.barrier(group=control)
        tell(rank, **figures(seconds, calls, message, world))
    tell(rank, stage="done")


def main() -> None:
    """Probe, and leave without the orderly end in which broken communicators hang."""
    settings = json.loads(sys.argv[1])
    # Python puts a script's own folder first, where our module names would shadow others'.
    sys.path[:] = [path for path in sys.path if path != os.path.dirname(os.path.abspath(__file__))]
    stay_with(settings["parent"])
    status = 0
    try:
        probe(settings)
    except Exception as error:
        tell(settings["rank"], error=f"{type(error).__name__}: {error}"[:2000])
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        status = 1
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
