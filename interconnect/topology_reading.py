"""Reads this host's topology from NVML, ``nvidia-smi topo -m`` and sysfs; what cannot be read is left unknown."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from interconnect import pci_tree
from interconnect.topology import GpuPlace, Link, Matrix, Pair, Topology, parse_matrix

T = TypeVar("T")
_GB = 2**30
# NVML_P2P_CAPS_INDEX_READ and _WRITE (pynvml's own names for them are one-tuples), and its NVML_P2P_STATUS_*.
_READ, _WRITE = 0, 1
_P2P_STATUS = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled by a driver setting",
    5: "not supported",
}
# Reasons for lower clocks that a person can change (nvmlClocksEventReason*).
_SLOWED_BY = {
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
_CLOCK_SM = 1


def read_topology(root: Path = Path("/")) -> Topology:
    """The whole topology; without NVML one without GPUs, whose ``missing`` says why."""
    try:
        import pynvml  # noqa: PLC0415 - raises without a driver

        pynvml.nvmlInit()
    except Exception as error:
        return Topology(
            missing={"NVML": str(error) or type(error).__name__},
            virtual_machine=pci_tree.in_virtual_machine(root),
            driver_parameters=pci_tree.driver_parameters(root),
        )
    try:
        return _read(pynvml, root)
    finally:
        pynvml.nvmlShutdown()


def _read(nvml: Any, root: Path) -> Topology:
    missing: dict[str, str] = {}
    matrix = _matrix(missing)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    gpus = [_gpu(nvml, index, handle, matrix, root) for index, handle in enumerate(handles)]
    pairs = [
        Pair(first, second, matrix.relations.get((first, second)), _p2p(nvml, handles[first], handles[second]))
        for first, second in itertools.combinations(range(len(handles)), 2)
    ]
    redirecting, unreadable = pci_tree.acs_of({bridge for gpu in gpus for bridge in gpu.bridges}, root)
    return Topology(
        tuple(gpus),
        tuple(pairs),
        redirecting,
        unreadable,
        pci_tree.iommu_mode([gpu.bus_id for gpu in gpus], root),
        pci_tree.in_virtual_machine(root),
        _asked(nvml.nvmlSystemGetDriverVersion),
        _asked(nvml.nvmlSystemGetCudaDriverVersion),
        pci_tree.driver_parameters(root),
        missing,
    )


def _asked(question: Callable[..., T], *arguments: Any) -> T | None:
    """NVML's answer, ``None`` where it has none."""
    try:
        answer = question(*arguments)
    except Exception:
        return None
    return answer.decode() if isinstance(answer, bytes) else answer  # type: ignore[return-value]


def _matrix(missing: dict[str, str]) -> Matrix:
    command = shutil.which("nvidia-smi")
    if command is None:
        missing["nvidia-smi topo -m"] = "nvidia-smi is not on PATH"
        return Matrix({}, {}, {})
    try:
        answer = subprocess.run([command, "topo", "-m"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        missing["nvidia-smi topo -m"] = str(error)[:200]
        return Matrix({}, {}, {})
    return parse_matrix(answer.stdout)


def _gpu(nvml: Any, index: int, handle: Any, matrix: Matrix, root: Path) -> GpuPlace:
    pci = _asked(nvml.nvmlDeviceGetPciInfo, handle)
    bus_id = pci.busId.decode() if pci is not None and isinstance(pci.busId, bytes) else getattr(pci, "busId", "")
    address = pci_tree.sysfs_address(bus_id) if bus_id else ""
    memory = _asked(nvml.nvmlDeviceGetMemoryInfo, handle)
    bar1 = _asked(nvml.nvmlDeviceGetBAR1MemoryInfo, handle)
    reasons = _asked(nvml.nvmlDeviceGetCurrentClocksEventReasons, handle) or 0
    place = GpuPlace(
        index,
        _asked(nvml.nvmlDeviceGetName, handle) or "unknown GPU",
        _asked(nvml.nvmlDeviceGetUUID, handle) or "",
        address,
        memory_gb=memory.total / _GB if memory else None,
        link=Link(
            _asked(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            _asked(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            _asked(nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            _asked(nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            _asked(nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration, handle),
        ),
        numa_node=matrix.numa_node.get(index),
        cpu_affinity=matrix.cpu_affinity.get(index),
        bridges=pci_tree.bridges_above(address, root),
        performance_state=_asked(nvml.nvmlDeviceGetPerformanceState, handle),
        bar1_gb=bar1.bar1Total / _GB if bar1 else None,
        clock_max_mhz=_asked(nvml.nvmlDeviceGetMaxClockInfo, handle, _CLOCK_SM),
        clock_limit_mhz=_asked(nvml.nvmlDeviceGetApplicationsClock, handle, _CLOCK_SM),
        slowed_by=tuple(words for bit, words in _SLOWED_BY.items() if reasons & bit),
    )
    return dataclasses.replace(
        place,
        power_limit_w=_watts(_asked(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
        power_default_w=_watts(_asked(nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)),
    )


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _p2p(nvml: Any, first: Any, second: Any) -> str | None:
    """``ok`` when both may read and write each other; the first reason why not otherwise."""
    answers = [
        _asked(nvml.nvmlDeviceGetP2PStatus, one, other, kind)
        for one, other in ((first, second), (second, first))
        for kind in (_READ, _WRITE)
    ]
    if None in answers:
        return None
    return next((_P2P_STATUS.get(int(answer or 0), "unknown") for answer in answers if answer), "ok")
