"""After the end of an engine: its port and the memory of its GPUs must come back before the next one starts."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from engine.failure import Failure
from engine.gpus import await_memory_free, who_is_on
from engine.ports import can_bind, in_use, listener

# A rank that is stuck in the driver was seen to hold its GPU and ports for more than 30 s; a minute is given.
COME_BACK_S = 60.0


@dataclass(frozen=True)
class Teardown:
    """How an engine ended.

    Attributes:
        seconds: from the order to stop until all was free.
        survivors_killed: processes that SIGTERM alone did not end.
        tree_gone, port_free, memory_free: what was seen to be so at the end.
        failure: what did not come back (GPUs, processes: the environment's fault); ``None`` when all did.
    """

    seconds: float
    survivors_killed: int
    port_free: bool
    memory_free: bool
    tree_gone: bool = True
    failure: Failure | None = None


def await_free(
    port: int, memory_before_gb: Mapping[int, float], tree_gone: bool, limit_s: float
) -> tuple[bool, bool, Failure | None]:
    """Wait for the port and for each GPU; (port free, memory free, what did not come back within ``limit_s``)."""
    deadline = time.monotonic() + limit_s
    pause = 0.01
    while not (port_free := can_bind(port)) and time.monotonic() < deadline:
        if tree_gone and listener(port) is not None:
            break  # a stranger's, which waiting does not bring back
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)
    excess = await_memory_free(memory_before_gb, max(0.0, deadline - time.monotonic()))
    if excess:
        gpus = ", ".join(f"GPU {index} ({more:.1f} GB)" for index, more in sorted(excess.items()))
        failure = Failure(
            None,
            "teardown",
            f"memory did not come back within {COME_BACK_S:.0f} s after the engine's end: {gpus}",
            "environment",
            "End the processes that hold it, or reset the GPU (nvidia-smi --gpu-reset), before the search goes on.",
            who_is_on(list(excess)) or "NVML names no process on these GPUs.",
        )
    elif not tree_gone:
        failure = Failure(
            None,
            "teardown",
            f"processes of the engine did not end within {COME_BACK_S:.0f} s of SIGKILL",
            "environment",
            "They are stuck in the kernel: look at dmesg for Xid and I/O errors; a reboot may be needed.",
            "",
        )
    elif not port_free:
        failure = Failure(
            None,
            "teardown",
            f"port {port} is not free after the engine's end",
            "transient",
            "Choose another port, or end the process that holds it.",
            in_use(port) or "",
        )
    else:
        failure = None
    return port_free, not excess, failure
