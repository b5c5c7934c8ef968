"""Faults: the small language in which they are asked for, and those that a configuration brings with it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rehearsal.memory import Memory
from rehearsal.resolution import is_big
from rehearsal.settings import Settings
from rehearsal.startup import STAGES

IN_A_STAGE = ("crash", "hang", "slow", "oom", "kill")
SERVING = ("garbage", "nan", "deaf", "die-serving", "keep-port", "ignore-sigterm", "orphan")


class FaultError(Exception):
    """REHEARSAL_FAULT holds what is no fault; the text is one sentence with the remedy."""


class Fault(NamedTuple):
    """One fault. ``rank`` counts processes from 0; ``number`` is a factor (slow) or a count of requests."""

    kind: str
    stage: str = ""
    rank: int = 0
    number: float = 0.0
    text: str = ""


class Trace(NamedTuple):
    """Where an exception comes from: (file, line, function, code) from the outside in, and the exception's own line."""

    frames: tuple[tuple[str, int, str, str], ...]
    exception: str


def _one(text: str, ranks: int) -> Fault:
    kind, _, where = text.partition("@")
    kind = kind.strip()
    if kind not in (*IN_A_STAGE, *SERVING):
        known = ", ".join((*IN_A_STAGE, *SERVING))
        raise FaultError(f"REHEARSAL_FAULT: {kind!r} is no fault; known are {known}.")
    if kind in SERVING:
        number = where.strip() or "0"
        if not number.isdigit():
            raise FaultError(f"REHEARSAL_FAULT: {text!r} wants a count of requests after '@', such as {kind}@100.")
        return Fault(kind, number=int(number))
    stage, *rest = [part.strip() for part in where.split(":", 2)]
    stage = {"kv": "mamba and KV cache", "": "target graphs"}.get(stage, stage)
    if stage not in STAGES:
        raise FaultError(f"REHEARSAL_FAULT: {stage!r} is no phase of a start; known are {', '.join(STAGES)}.")
    rank, factor, words = 0, 2.0, ""
    if rest and rest[0]:
        digits = rest[0].upper().removeprefix("TP")
        if not digits.isdigit():
            raise FaultError(f"REHEARSAL_FAULT: {rest[0]!r} in {text!r} is no rank; write TP0 to TP{ranks - 1}.")
        rank = int(digits)
    if rank >= ranks:
        raise FaultError(
            f"REHEARSAL_FAULT: rank TP{rank} in {text!r} is not there; the last of {ranks} is TP{ranks - 1}."
        )
    if len(rest) > 1 and kind == "slow":
        try:
            factor = float(rest[1])
        except ValueError:
            raise FaultError(
                f"REHEARSAL_FAULT: {rest[1]!r} in {text!r} is no factor; write slow@weights:TP1:3."
            ) from None
    elif len(rest) > 1:
        words = rest[1]
    return Fault(kind, stage, rank, factor, words)


def parse(text: str, ranks: int) -> tuple[Fault, ...]:
    """The faults asked for, such as ``crash@target graphs:TP3; keep-port``; raises FaultError."""
    return tuple(_one(part.strip(), ranks) for part in text.split(";") if part.strip())


# What crashes on the users' machine though SGLang accepts it: every condition of a row must hold. A condition is
# (name of argument or environment variable, test, value). The causes are those of public reports.
Condition = tuple[str, str, Any]
BY_CONFIGURATION: tuple[tuple[tuple[Condition, ...], Fault], ...] = (
    ((("flashinfer_allreduce_fusion_backend", "given", None), ("arch", "==", "SM120")),
     Fault("crash", "autotune", 0, text="ValueError: FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.")),
    ((("enable_flashinfer_allreduce_fusion", "==", True), ("arch", "==", "SM120")),
     Fault("crash", "autotune", 0, text="ValueError: FlashInfer allreduce fusion requires SM90 or SM10X NVIDIA GPUs.")),
    ((("moe_runner_backend", "in", ("flashinfer_trtllm", "flashinfer_trtllm_routed", "flashinfer_cutedsl")),
      ("arch", "==", "SM120")),
     Fault("crash", "target graphs", 0, text="RuntimeError: No kernel image is available for execution on the device")),
    ((("moe_runner_backend", "==", "cutlass"), ("fp4_gemm_runner_backend", "==", "flashinfer_cudnn")),
     Fault("crash", "target graphs", 2, text="RuntimeError: Failed to initialize cutlass TMA WS grouped gemm. "
           "Error: Error Internal")),
    ((("moe_runner_backend", "==", "marlin"), ("speculative_eagle_topk", ">", 1)),
     Fault("crash", "draft graphs", 3, text="RuntimeError: CUDA error: an illegal memory access was encountered")),
    ((("attention_backend", "==", "trtllm_mha"), ("speculative_algorithm", "given", None), ("arch", "==", "SM120")),
     Fault("crash", "draft graphs", 0,
           text="ValueError: EAGLE is not supported in decode attention backend trtllm_mha")),
    ((("attention_backend", "==", "fa3"), ("arch", "==", "SM120")),
     Fault("crash", "mamba and KV cache", 0,
           text="AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use "
           "`--attention-backend flashinfer`.")),
    ((("NCCL_P2P_LEVEL", "==", "SYS"), ("NCCL_MIN_NCHANNELS", ">", 8),
      ("mem_fraction_static", ">", 0.85)),
     Fault("crash", "distributed init", 5, text="RuntimeError: NCCL error: Failed to CUDA calloc 10485760 bytes")),
    ((("NCCL_ALGO", "==", "Tree"), ("NCCL_PROTO", "in", ("LL128", "LL,LL128,Simple")),
      ("NCCL_MIN_NCHANNELS", ">", 4)),
     Fault("crash", "distributed init", 4,
           text="RuntimeError: NCCL error: internal error - please report this issue to the NCCL developers")),
    ((("NCCL_P2P_DISABLE", "==", "1"), ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "==", "1")),
     Fault("crash", "distributed init", 0,
           text="RuntimeError: custom_all_reduce.cuh:307 'peer access is not supported between these two devices'")),
    ((("speculative_num_steps", ">", 4), ("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE", "==", "1")),
     Fault("crash", "draft graphs", 3, text="RuntimeError: CUDA error: an illegal memory access was encountered")),
    ((("enable_linear_replayssm_spec", "==", True), ("speculative_num_steps", ">", 4)),
     Fault("crash", "draft-extend graphs", 6,
           text="RuntimeError: CUDA error: an illegal memory access was encountered")),
    ((("mamba_radix_cache_strategy", "==", "extra_buffer_lazy"), ("page_size", ">", 1),
      ("disable_overlap_schedule", "==", True), ("speculative_num_steps", ">", 2)),
     Fault("crash", "mamba and KV cache", 0, text="AssertionError: mamba ping-pong buffer is not page aligned")),
    ((("max_mamba_cache_size", "<", 16), ("speculative_algorithm", "given", None)),
     Fault("die-serving", number=20)),
    ((("SGLANG_ENABLE_GARBAGE_PATH", "==", "1"),), Fault("garbage")),
)  # fmt: skip


def _holds(condition: Condition, values: dict[str, Any]) -> bool:
    name, test, wanted = condition
    value = values.get(name)
    if test == "given":
        return value is not None and value is not False
    if value is None:
        return False
    if test in (">", "<"):
        try:
            return float(value) > wanted if test == ">" else float(value) < wanted
        except (TypeError, ValueError):
            return False
    return value in wanted if test == "in" else value == wanted


def of_configuration(
    args: dict[str, Any], environment: dict[str, str], memory: Memory, settings: Settings, ranks: int
) -> tuple[Fault, ...]:
    """The faults that these settings bring with them on the users' machine (memory: on any GPU)."""
    if not settings.configuration_faults or args["device"] == "cpu":
        return ()
    found: list[Fault] = []
    if memory.lacking:
        stage = {"weights": "weights", "pools": "mamba and KV cache", "graphs": "target graphs"}[memory.lacking]
        text = ""
        if memory.lacking == "pools":
            text = (
                "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. "
                f"Current value: mem_fraction_static={args['mem_fraction_static']}"
            )
        found.append(Fault("crash" if text else "oom", stage, 0, text=text))
    if is_big(args):
        values = {**environment, **args, "arch": settings.arch}
        for conditions, fault in BY_CONFIGURATION:
            if all(_holds(condition, values) for condition in conditions):
                found.append(fault._replace(rank=min(fault.rank, ranks - 1)))
    return tuple(found)


_OUTER = ("managers/scheduler.py", 6362, "run_scheduler_process", "scheduler = Scheduler(server_args, port_args)")
_INIT = ("managers/scheduler.py", 568, "__init__", "self.init_model_worker()")
_GRAPHS = ("managers/scheduler.py", 1117, "init_all_cuda_graphs", "self.{worker}.init_cuda_graphs()")

DEEPER: dict[str, tuple[tuple[str, int, str, str], ...]] = {
    "imports": (),
    "distributed init": (("distributed/bootstrap.py", 130, "init_parallel_runtime", "init_distributed_environment("),),
    "weights": (("model_executor/model_runner.py", 1301, "load_model", "self.model = self.loader.load_model("),),
    "draft weights": (("speculative/eagle_worker_v2.py", 212, "__init__", "self.draft_worker = EagleDraftWorker("),),
    "mamba and KV cache": (("managers/scheduler.py", 1100, "init_memory_pools", "self.init_target_memory_pool()"),),
    "autotune": (("model_executor/runner/base_runner.py", 318, "warmup", "self._prepare_allreduce_fusion()"),),
    "prefill graphs": (("model_executor/runner/prefill_cuda_graph_runner.py", 402, "capture", "self._capture_one("),),
    "target graphs": (("model_executor/runner/decode_cuda_graph_runner.py", 600, "__init__", "self.capture()"),),
    "draft graphs": (
        ("speculative/eagle_worker_v2.py", 522, "_capture_cuda_graphs", "EAGLEDraftCudaGraphRunner(self)"),
    ),
    "draft-extend graphs": (("speculative/eagle_worker_v2.py", 641, "_capture_cuda_graphs", "self._capture_extend()"),),
    "warm-up": (("managers/scheduler.py", 1482, "event_loop_overlap", "result = self.run_batch(batch)"),),
}
DEFAULT_EXCEPTION: dict[str, str] = {
    "imports": "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
    "distributed init": "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    "weights": "RuntimeError: Tried to load weights of size torch.Size([512, 4096]) to a parameter of size "
    "torch.Size([256, 4096])",
    "mamba and KV cache": "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any "
    "requests",
}
SOLUTIONS = (
    "\nPossible solutions:\n1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n"
    "2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)\n"
    "3. disable CUDA graph by --disable-cuda-graph. (Not recommended. Huge performance loss)"
)


def traceback(fault: Fault, memory: Memory, rank: int) -> str:
    """The text of the exception that a rank dies of, as SGLang's own traceback goes."""
    stage = fault.stage or "warm-up"
    if fault.kind == "oom":
        free = max(0.02, min(0.9, abs(memory.after_pools) / 10))
        inner = (
            f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU {rank} has a total capacity "
            f"of {memory.total:.2f} GiB of which {free:.2f} GiB is free."
        )
    else:
        inner = fault.text or DEFAULT_EXCEPTION.get(
            stage, "RuntimeError: CUDA error: an illegal memory access was encountered"
        )
    if stage.endswith("graphs") and not inner.startswith(("ValueError", "AssertionError")):
        inner = f"Exception: Capture cuda graph failed: {inner.partition(': ')[2]}{SOLUTIONS}"
    worker = "draft_worker" if stage.startswith("draft") else "tp_worker"
    frames = [_OUTER, _INIT] if stage != "warm-up" else []
    if stage.endswith("graphs"):
        frames.append((*_GRAPHS[:3], _GRAPHS[3].format(worker=worker)))
    frames.extend(DEEPER[stage])
    lines = ["Traceback (most recent call last):"]
    for file, number, function, code in frames:
        lines.append(f'  File "/opt/rehearsal/sglang/srt/{file}", line {number}, in {function}')
        lines.append(f"    {code}")
    return "\n".join([*lines, inner]) + "\n"
