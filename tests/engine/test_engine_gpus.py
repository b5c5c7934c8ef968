"""GPUs as NVML names them, with a made-up NVML where there is none."""

import os
import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import engine.gpus
from engine.gpus import ForeignProcess, Gpu, await_memory_free, chosen_by, foreign_processes, gpu_uuids, visible_gpus

GPUS = [Gpu(index, f"GPU-{index}{index}-x", "RTX PRO 6000", 96.0, 0.0) for index in range(4)]


class MadeUpNvml:
    """Two GPUs; processes as given."""

    NVMLError = RuntimeError

    def __init__(self, pids: dict[int, list[int]]) -> None:
        self.pids = pids

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index > 1:
            raise RuntimeError("no such GPU")
        return index

    def nvmlDeviceGetMemoryInfo(self, _: int) -> Any:
        return SimpleNamespace(total=96 * engine.gpus.GB, used=engine.gpus.GB)

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return f"GPU-{handle}"

    def nvmlDeviceGetName(self, _: int) -> bytes:
        return b"Made-up"

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.pids.get(handle, [])]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [(None, [0, 1, 2, 3]), ("", []), ("2,0", [2, 0]), ("GPU-11", [1]), ("1,9,2", [1]), ("-1", [])],
)
def test_visible_gpus_are_those_that_cuda_would_see(visible: str | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in chosen_by(visible, GPUS)] == indices


def test_without_nvml_there_are_no_gpus_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.gpus, "_nvml", lambda: None)
    assert visible_gpus() == []
    assert foreign_processes((0, 1)) == []
    assert gpu_uuids((3,)) == {3: "gpu-3"}
    assert await_memory_free({}) == {}


def test_a_foreign_process_is_named_and_our_own_are_not_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    try:
        monkeypatch.setattr(engine.gpus, "_nvml", lambda: MadeUpNvml({0: [os.getpid(), child.pid], 1: [os.getppid()]}))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert [gpu.name for gpu in visible_gpus()] == ["Made-up", "Made-up"]
        (foreign,) = foreign_processes((0, 1, 5))
        assert foreign.pid == os.getppid()
        assert foreign.sentence().startswith(f"GPU 1 is used by pid {os.getppid()}")
    finally:
        child.kill()
        child.wait()
    assert "cannot be seen" in ForeignProcess(0, 5, "", "").sentence()


def test_memory_is_awaited_until_it_is_near_what_it_was() -> None:
    readings = iter([{0: 70.0, 1: 2.0}, {0: 30.0, 1: 2.0}, {0: 1.3, 1: 2.0}])

    def read(_: Sequence[int]) -> dict[int, float]:
        return next(readings)

    assert await_memory_free({0: 1.0, 1: 2.0}, 5.0, read) == {}


def test_memory_that_does_not_come_back_is_told_by_gpu() -> None:
    assert await_memory_free({0: 1.0, 1: 2.0}, 0.05, lambda _: {0: 70.0, 1: 2.0}) == {0: 69.0}
