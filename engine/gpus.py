"""The GPUs of this host as NVML sees them: which there are, who is on them, and whether their memory came back.

Everything here works where there is no NVML: there are no GPUs then.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from engine.ports import describe_process

GB = 1024**3
# A GPU is as free as before when at most so much more of it is used; contexts of monitors come and go by this much.
NEAR_GB = 0.5
# NVIDIA's own sharing daemon is on a GPU without working on it.
SHARING_DAEMONS = ("nvidia-cuda-mps-server",)


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``index`` is NVML's (PCI order)."""

    index: int
    uuid: str
    name: str
    memory_total_gb: float
    memory_used_gb: float


@dataclass(frozen=True)
class ForeignProcess:
    """A process on a GPU that is none of ours. In a container, ``user`` and ``command`` may be unknown (empty)."""

    gpu: int
    pid: int
    user: str
    command: str

    def sentence(self) -> str:
        """``GPU 3 is used by pid 4711 of alice: python train.py``."""
        if not self.command:
            return f"GPU {self.gpu} is used by pid {self.pid}, which cannot be seen from here"
        return f"GPU {self.gpu} is used by pid {self.pid} of {self.user}: {self.command[:200]}"


@functools.cache
def _nvml() -> Any:
    """The NVML module, initialised once a process; ``None`` where there is no driver."""
    try:
        import pynvml  # noqa: PLC0415 - optional, and slow where there is a driver

        pynvml.nvmlInit()
    except Exception:
        return None
    return pynvml


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _read(index: int) -> Gpu:
    nvml = _nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index,
        _text(nvml.nvmlDeviceGetUUID(handle)),
        _text(nvml.nvmlDeviceGetName(handle)),
        memory.total / GB,
        memory.used / GB,
    )


def chosen_by(visible: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that a value of ``CUDA_VISIBLE_DEVICES`` leaves: numbers or beginnings of UUIDs; ``None``: all."""
    if visible is None:
        return list(gpus)
    chosen: list[Gpu] = []
    for word in (part.strip() for part in visible.split(",")):
        match = [gpu for gpu in gpus if word and (str(gpu.index) == word or gpu.uuid.startswith(word))]
        if not match:
            break  # as CUDA does: what follows the first unknown device does not count
        chosen += match[:1]
    return chosen


def visible_gpus() -> list[Gpu]:
    """The GPUs that we may use, ``CUDA_VISIBLE_DEVICES`` respected; none where there is no NVML."""
    nvml = _nvml()
    if nvml is None:
        return []
    try:
        return chosen_by(
            os.environ.get("CUDA_VISIBLE_DEVICES"), [_read(index) for index in range(nvml.nvmlDeviceGetCount())]
        )
    except nvml.NVMLError:
        return []


def memory_used_gb(indices: Sequence[int]) -> dict[int, float]:
    """Memory in use on each of these GPUs, empty where NVML cannot say."""
    nvml = _nvml()
    if nvml is None:
        return {}
    try:
        return {index: _read(index).memory_used_gb for index in indices}
    except nvml.NVMLError:
        return {}


def gpu_uuids(indices: Sequence[int]) -> dict[int, str]:
    """The UUID of each of these GPUs; a made-up name where NVML cannot say (a rehearsal without GPUs)."""
    nvml = _nvml()
    names = {index: f"gpu-{index}" for index in indices}
    if nvml is not None:
        for index in indices:
            try:
                names[index] = _text(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError:
                continue
    return names


def _describe(gpu: int, pid: int) -> ForeignProcess:
    try:
        process = psutil.Process(pid)
        return ForeignProcess(gpu, pid, process.username(), " ".join(process.cmdline()) or process.name())
    except (psutil.Error, OSError):
        return ForeignProcess(gpu, pid, "", "")


def foreign_processes(indices: Sequence[int], ours: Collection[int] = ()) -> list[ForeignProcess]:
    """Who computes on these GPUs, apart from this process, what it started, and ``ours``."""
    nvml = _nvml()
    if nvml is None:
        return []
    mine = {os.getpid(), *ours, *(child.pid for child in psutil.Process().children(recursive=True))}
    found = []
    for index in indices:
        try:
            running = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError:
            continue
        seen = (_describe(index, process.pid) for process in running if process.pid not in mine)
        found += [foreign for foreign in seen if not foreign.command.split(" ")[0].endswith(SHARING_DAEMONS)]
    return found


def await_memory_free(
    before_gb: Mapping[int, float],
    limit_s: float = 60.0,
    read: Callable[[Sequence[int]], Mapping[int, float]] = memory_used_gb,
) -> dict[int, float]:
    """Wait until each GPU uses about what it used before; the GPUs that do not by then, with what they use too much."""
    deadline = time.monotonic() + limit_s
    pause = 0.02
    while True:
        now = read(list(before_gb)) if before_gb else {}
        excess = {index: used - before_gb[index] for index, used in now.items() if used - before_gb[index] > NEAR_GB}
        if not excess or time.monotonic() >= deadline:
            return excess
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


def who_is_on(indices: Sequence[int]) -> str:
    """The processes that NVML names on these GPUs, ours too, in words; empty where it names none."""
    nvml = _nvml()
    if nvml is None:
        return ""
    named = []
    for index in indices:
        try:
            running = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(index))
        except nvml.NVMLError:
            continue
        named += [f"GPU {index}: {describe_process(process.pid)}" for process in running]
    return "; ".join(named)
