"""Logs in SGLang's words for the tests: a start of several ranks up to a phase, and what may end it."""

from __future__ import annotations

_BEFORE = (
    ("distributed init", "Init torch distributed begin."),
    ("", "Init torch distributed ends. elapsed=1.25 s, mem usage=0.97 GB"),
    ("weights", "Load weight begin. avail mem=90.00 GB"),
    ("", "Load weight end. elapsed=20.00 s, type=Qwen3_5Moe, avail mem=60.00 GB, mem usage=30.00 GB."),
    ("draft weights", "Load weight begin. avail mem=60.00 GB"),
    ("", "Load weight end. elapsed=2.00 s, type=Qwen3_5MoeMTP, avail mem=59.00 GB, mem usage=1.00 GB."),
    (
        "mamba and KV cache",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 100, K size: 5.00 GB, V size: 5.00 GB",
    ),
    ("", "Memory pool end. avail mem=20.00 GB"),
    (
        "target graphs",
        "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, bs=[1], avail mem=19.00 GB",
    ),
    ("", "Capture target verify CUDA graph end. elapsed=30.00 s, mem usage=1.00 GB, avail mem=18.00 GB."),
)
READY = (
    "[2026-11-30 20:29:00] INFO:     Started server process [7]\n"
    "[2026-11-30 20:29:00] INFO:     Application startup complete.\n"
)
FIRED_UP = "[2026-11-30 20:29:05] The server is fired up and ready to roll!\n"
SIGQUIT = "[2026-11-30 20:29:30] Received sigquit from a child process. It usually means the child failed.\n"


def stamped(text: str, rank: str = "", second: int = 0) -> str:
    """One message of a rank."""
    return f"[2026-11-30 20:27:{second:02d}{f' {rank}' if rank else ''}] {text}\n"


def up_to(phase: str, ranks: tuple[str, ...] = ("TP0", "TP1")) -> str:
    """A log of a start in which every rank has just begun this phase."""
    log = "# a start\n"
    if phase == "arguments":
        return log
    log += stamped("server_args=ServerArgs(model_path='/models/x', speculative_algorithm='EAGLE')")
    for second, (name, text) in enumerate(_BEFORE):
        log += "".join(stamped(text, rank, second) for rank in ranks)
        if name == phase:
            return log
    log += READY
    return log if phase == "warm-up" else log + FIRED_UP


def traceback(
    text: str, frame: str = 'File "/opt/engine/lib/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process'
) -> str:
    """A traceback that ends in this exception."""
    return f"Traceback (most recent call last):\n  {frame}\n    scheduler = Scheduler(\n{text}\n"


def raised(rank: str, text: str) -> str:
    """The exception of a rank, as its scheduler logs it."""
    return stamped(f"Scheduler hit an exception: {traceback(text)}", rank, 59)
