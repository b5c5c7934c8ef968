"""The lines that an engine of each version writes, as data, and how a line is put together.

Wording and fields as SGLang 0.5.17 and 0.5.23 print them, so that whatever reads one log reads the other.
"""

from __future__ import annotations

import os
import time
from typing import Any

COMMON = {
    "rehearsal": "REHEARSAL: this is not SGLang but quietlane's stand-in for it (rehearsal-{version}); no model is "
    "loaded and every figure is modelled. {directions}",
    "nccl": "sglang is using nccl==2.28.9",
    "weights begin": "Load weight begin. avail mem={avail:.2f} GB",
    "weights end": "Load weight end. elapsed={elapsed:.2f} s, type={type}, {quant}avail mem={avail:.2f} GB, "
    "mem usage={used:.2f} GB.",
    "mamba": "Mamba Cache is allocated. max_mamba_cache_size: {states}, conv_state size: {conv:.2f}GB, "
    "ssm_state size: {ssm:.2f}GB ",
    "mamba intermediate": "intermediate_ssm_state_cache size: {intermediate:.2f}GB "
    "intermediate_conv_window_cache size: 0.00GB ",
    "kv": "KV Cache is allocated. dtype: {dtype}, #tokens: {tokens}, K size: {half:.2f} GB, V size: {half:.2f} GB",
    "pool end": "Memory pool end. avail mem={avail:.2f} GB",
    "linear": "Linear attention kernel backend: decode={backend}, prefill={backend}, verify={backend}",
    "hybrid": "Using hybrid linear attention backend for hybrid GDN models.",
    "no prefill graphs": "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
    "(e.g. via --cuda-graph-backend-prefill=disabled or auto-disable rules).",
    "graphs begin": "Capture {which} CUDA graph begin. backend={backend}, num_tokens_per_req={tokens}, "
    "bs={sizes}, avail mem={avail:.2f} GB",
    "graphs end": "Capture {which} CUDA graph end. elapsed={elapsed:.2f} s, mem usage={used:.2f} GB, "
    "avail mem={avail:.2f} GB.",
    "prefill graphs begin": "Capture target prefill CUDA graph begin. backend={backend}, num_tokens={sizes}, "
    "avail mem={avail:.2f} GB",
    "autotune begin": "Running FlashInfer autotune with cache: ~/.cache/flashinfer/autotune.json",
    "autotune skip": "[Autotuner]: Skipping tactic <flashinfer.fused_moe.MoERunner> 14, due to failure while "
    "profiling: Failed to initialize cutlass TMA WS grouped gemm.",
    "autotune end": "FlashInfer autotune completed.",
    "pcie ipc": "FlashInfer PCIe-IPC all-reduce enabled (world={world}, hidden=4096)",
    "no custom all-reduce": "CustomAllreduce is disabled because it's not supported on more than two PCIe-only GPUs. "
    "To silence this warning, specify disable_custom_all_reduce=True explicitly.",
    "summary": "max_total_num_tokens={tokens}, chunked_prefill_size={chunk}, max_prefill_tokens={prefill}, "
    "max_running_requests={running}, context_len={context}, available_{device}_mem={avail:.2f} GB",
    "timings": "Engine startup timings (s): load_weight={weights:.2f}, kv_cache_allocation={pools:.2f}, "
    "scheduler_e2e={scheduler:.2f}, cuda_graph={{prefill={prefill:.2f}, decode={decode:.2f}, "
    "target_verify={verify:.2f}, draft_prefill=0.00, draft_decode={draft:.2f}, draft_extend={extend:.2f}}}, "
    "tokenizer_e2e={total:.2f}",
    "uvicorn 1": "INFO:     Started server process [{pid}]",
    "uvicorn 2": "INFO:     Waiting for application startup.",
    "uvicorn 3": "INFO:     Application startup complete.",
    "uvicorn 4": "INFO:     Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)",
    "port taken": "ERROR:    [Errno 98] error while attempting to bind on address ('{host}', {port}): "
    "address already in use",
    "access": 'INFO:     {peer} - "{method} {path} HTTP/1.1" {status}',
    "ready": "The server is fired up and ready to roll!",
    "prefill": "Prefill batch, #new-seq: {sequences}, #new-token: {tokens}, #cached-token: {cached}, {usage}"
    "#running-req: {running}, #queue-req: {queued}, #pending-token: {pending}, {graph} graph: False, "
    "input throughput (token/s): {throughput:.2f}",
    "decode": "Decode batch, #running-req: {running}, {usage}{acceptance}{graph} graph: {graphs}, "
    "gen throughput (token/s): {throughput:.2f}, #queue-req: {queued}",
    "acceptance": "accept len: {length:.2f}, accept rate: {rate:.2f}, ",
    "exception": "Scheduler hit an exception: {traceback}\n",
    "sigquit starting": "Received sigquit from a child process. It usually means the child failed.",
    "sigquit serving": "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
    "subprocess": "Subprocess {name} (pid={child}) crashed with exit code {code}. Triggering SIGQUIT for cleanup...",
    "kill tree": "kill_process_tree called: parent_pid={pid}, include_parent={own}, pid={pid}",
    "died": "Rank {rank} scheduler died during initialization (exit code: {code}). If exit code is -9 (SIGKILL), "
    "a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check.",
    "sigterm": "SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
    "drained": "Gracefully exiting... Remaining number of requests {requests}. Remaining requests remaining_rids=[].",
    "goodbye 1": "INFO:     Shutting down",
    "goodbye 2": "INFO:     Waiting for application shutdown.",
    "goodbye 3": "INFO:     Application shutdown complete.",
    "goodbye 4": "INFO:     Finished server process [{pid}]",
}  # fmt: skip

BY_VERSION: dict[str, dict[str, str]] = {
    "0.5.17": {
        "arguments": "server_args=ServerArgs({arguments})",
        "distributed begin": "Init torch distributed begin.",
        "distributed end": "Init torch distributed ends. elapsed={elapsed:.2f} s, mem usage={used:.2f} GB",
        "draft begin": "Init torch distributed begin.",
        "draft end": "Init torch distributed ends. elapsed=0.01 s, mem usage=0.00 GB",
        "tree": "Init Unified RadixTree with components ({components})",
        "tree 2": "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm={hybrid} "
        "hierarchical=False streaming_wrapped=False",
    },
    "0.5.23": {
        "arguments": "server_args={arguments}",
        "distributed begin": "Init parallel begin.",
        "distributed end": "Init parallel ends. elapsed={elapsed:.2f} s",
        "baseline": "Memory baseline taken. mem usage={used:.2f} GB",
        "draft begin": "Memory baseline taken. mem usage=0.00 GB",
        "tree": "Init Unified Radix Cache. Components: ({components}). Tree Core: RustUnifiedTreeCore",
        "tree 2": "Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False hybrid_ssm={hybrid} "
        "hicache_attached=False",
    },
}


def line(version: str, name: str, /, **fields: Any) -> str | None:
    """The text of a line, ``None`` where this version has no such line."""
    template = BY_VERSION[version].get(name) or COMMON.get(name)
    return template.format(**fields) if template is not None else None


def prefix(widths: dict[str, int], places: dict[str, int]) -> str:
    """`` DP0 PP1 TP3``: a part for each dimension that is wider than one."""
    return "".join(f" {name}{places[name]}" for name in ("DP", "PP", "TP", "EP") if widths.get(name, 1) > 1)


def stamp(rank: str = "") -> str:
    """``[2026-11-30 21:28:09 TP0]`` of now."""
    return time.strftime("[%Y-%m-%d %H:%M:%S") + rank + "]"


def raw(text: str) -> None:
    """Write to standard error in one call: lines of several processes do not mix. A closed log is ignored."""
    data = text.encode()
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        return


def say(version: str, name: str, rank: str = "", /, **fields: Any) -> None:
    """Write one line with its time and rank."""
    text = line(version, name, **fields)
    if text is not None:
        raw(f"{stamp(rank)} {text}\n")


BLOCKS = " ▏▎▍▌▋▊▉█"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def shards_bar(done: int, total: int, elapsed: float) -> str:
    """One redraw of the bar of the weights."""
    pace = f"{done / elapsed:5.2f}it/s" if done and elapsed else "?it/s"
    left = _clock(elapsed / done * (total - done)) if done else "?"
    percent = round(100 * done / total)
    pace = f" {pace}".replace("  ", " ") if done else " ?it/s"
    return f"\rMulti-thread loading shards: {percent:3d}% Completed | {done}/{total} [{_clock(elapsed)}<{left},{pace}]"


def capture_bar(size: int, avail: float, done: int, total: int, elapsed: float) -> str:
    """One redraw of the bar of a graph capture."""
    eighths = done * 80 // total
    bar = "█" * (eighths // 8) + (BLOCKS[eighths % 8] if eighths % 8 else "")
    left = _clock(elapsed / done * (total - done)) if done else "?"
    pace = f"{elapsed / done:5.2f}s/it" if done else "?it/s"
    progress = f"{round(100 * done / total):3d}%|{bar:<10}| {done}/{total} [{_clock(elapsed)}<{left}, {pace}]"
    return f"\rCapturing batches (bs={size} avail_mem={avail:.2f} GB): {progress}"
