"""What might explain a difference between two measurements: host, GPUs, driver and versions, by small collectors."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import socket
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

_PACKAGES = (
    "sglang", "sglang-kernel", "torch", "flashinfer-python", "triton", "transformers", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "sgl-deep-gemm", "xgrammar",
)  # fmt: skip
# Runs in the engine's interpreter, which may be another environment than ours.
_VERSIONS = """
import json, sys
from importlib import metadata
found = {"python": sys.version.split()[0]}
for name in sys.argv[1:]:
    try: found[name] = metadata.version(name)
    except metadata.PackageNotFoundError: pass
print(json.dumps(found))
"""
# A virtual machine may grow its memory while it runs.
_VOLATILE = ("memory_total_gb",)


def _host() -> dict[str, Any]:
    memory = psutil.virtual_memory()
    return {
        "name": socket.gethostname(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))),
        "memory_total_gb": round(memory.total / 2**30, 1),
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor()


def _gpus() -> dict[str, Any]:
    import pynvml  # noqa: PLC0415 - raises without a driver, and costs time where there is none

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "cuda_driver": pynvml.nvmlSystemGetCudaDriverVersion(),
            "gpus": [
                {
                    "name": pynvml.nvmlDeviceGetName(handle),
                    "uuid": pynvml.nvmlDeviceGetUUID(handle),
                    "memory_gb": round(pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30, 1),
                    "power_limit_w": round(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
                }
                for handle in handles
            ],
        }
    finally:
        pynvml.nvmlShutdown()


def _versions(interpreter: str, environment: Mapping[str, str]) -> dict[str, str]:
    answer = subprocess.run(
        [interpreter, "-c", _VERSIONS, *_PACKAGES],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found: dict[str, str] = json.loads(answer.stdout)
    return found


def describe(interpreter: str, rehearsal: bool = False, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Host, GPUs, driver and the engine's versions; what cannot be read is under ``missing`` with the reason."""
    collectors: dict[str, Callable[[], Any]] = {"host": _host}
    if not rehearsal:
        collectors |= {"accelerators": _gpus, "versions": lambda: _versions(interpreter, environment or {})}
    details: dict[str, Any] = {"rehearsal": rehearsal}
    for name, collect in collectors.items():
        try:
            details[name] = collect()
        except Exception as error:
            details.setdefault("missing", {})[name] = f"{type(error).__name__}: {error}"[:300]
    return details


def fingerprint(details: dict[str, Any]) -> str:
    """Sixteen hexadecimal digits that two environments share when their results compare."""

    def steady(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: steady(inner) for key, inner in value.items() if key not in _VOLATILE}
        return value

    return hashlib.sha256(json.dumps(steady(details), sort_keys=True, default=str).encode()).hexdigest()[:16]
