"""What of the host decides whether an engine starts and runs well: memory, compilers, versions, weights."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_GB = 2**30
# What kernels are compiled with at the first start: FlashInfer and torch extensions (nvcc, ninja, a C++ compiler), and
# Triton (ptxas, a C compiler).
COMPILERS = ("nvcc", "ptxas", "ninja", "c++")
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")

# Runs in the engine's interpreter: distributions that are there, requirements of sglang that are not met, and the
# folders where this interpreter's own wheels carry compilers.
_ASK = """
import json, os, sys, sysconfig
from importlib import metadata
found = {"python": sys.version.split()[0]}
for distribution in metadata.distributions():
    name = (distribution.metadata["Name"] or "").lower().replace("_", "-")
    if name:
        found.setdefault(name, distribution.version)
unmet = []
try:
    try:
        from packaging.requirements import Requirement
    except ImportError:
        from pip._vendor.packaging.requirements import Requirement
    for text in metadata.requires("sglang") or []:
        wanted = Requirement(text)
        if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
            name = wanted.name.lower().replace("_", "-")
            if name not in found:
                unmet.append([name, str(wanted.specifier), ""])
            elif not wanted.specifier.contains(found[name], prereleases=True):
                unmet.append([name, str(wanted.specifier), found[name]])
except Exception:
    pass
site = sysconfig.get_path("purelib")
folders = [os.path.dirname(sys.executable)]
carriers = ("nvidia/cu13/bin", "nvidia/cuda_nvcc/bin", "triton/backends/nvidia/bin")
folders += [os.path.join(site, part) for part in carriers]
print(json.dumps({"versions": found, "unmet": unmet, "folders": folders}))
"""


@dataclass(frozen=True)
class EngineInstallation:
    """What the engine's interpreter has installed.

    Attributes:
        versions: distributions by name, all small letters and hyphens.
        unmet: (name, what SGLang asks for, what is there; empty where nothing is).
        folders: where its wheels carry compilers.
        unreadable: why nothing is known, one phrase.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    unmet: tuple[tuple[str, str, str], ...] = ()
    folders: tuple[str, ...] = ()
    unreadable: str | None = None


@dataclass(frozen=True)
class Host:
    """Readings of one host; sizes in GB of 2**30 bytes, ``None`` where unknown."""

    memory_gb: float | None = None
    memory_available_gb: float | None = None
    swap_used_gb: float | None = None
    shared_memory_gb: float | None = None
    shared_memory_free_gb: float | None = None
    compilers: Mapping[str, str | None] = field(default_factory=dict)
    weights_gb: float | None = None
    largest_shard_gb: float | None = None
    weights_missing: str | None = None


def ask_interpreter(interpreter: str, timeout_s: float = 60.0) -> EngineInstallation:
    """What that Python has installed; never raises."""
    try:
        answer = subprocess.run(
            [interpreter, "-c", _ASK], capture_output=True, text=True, timeout=timeout_s, check=True
        )
        told = json.loads(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return EngineInstallation(unreadable=f"{interpreter}: {type(error).__name__}: {error}"[:200])
    return EngineInstallation(
        told["versions"], tuple((name, wanted, there) for name, wanted, there in told["unmet"]), tuple(told["folders"])
    )


def read_host(model: str | None = None, folders: tuple[str, ...] = (), root: Path = Path("/")) -> Host:
    """This host, and the weights of the model in that folder."""
    memory = psutil.virtual_memory()
    total, available = memory.total / _GB, memory.available / _GB
    limit = _container_limit_gb(root)
    if limit is not None and limit < total:
        total, available = limit, min(available, limit)
    shared = _shared_memory(root)
    weights, largest, missing = _weights(model)
    return Host(
        total,
        available,
        psutil.swap_memory().used / _GB,
        shared[0],
        shared[1],
        {name: _find(name, folders) for name in COMPILERS},
        weights,
        largest,
        missing,
    )


def _container_limit_gb(root: Path) -> float | None:
    try:
        text = (root / "sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return int(text) / _GB if text.isdigit() else None


def _shared_memory(root: Path) -> tuple[float | None, float | None]:
    try:
        usage = shutil.disk_usage(root / "dev/shm")
    except OSError:
        return None, None
    return usage.total / _GB, usage.free / _GB


def _find(name: str, folders: tuple[str, ...]) -> str | None:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(home) / "bin"), *folders])
    names = (name, "g++", "clang++") if name == "c++" else (name,)
    return next(filter(None, (shutil.which(one, path=path) for one in names)), None)


def _weights(model: str | None) -> tuple[float | None, float | None, str | None]:
    """(all weights in GB, the largest file in GB, why unknown)."""
    if model is None:
        return None, None, None
    folder = Path(model)
    if not folder.is_dir():
        return None, None, f"{model} is not a folder on this host"
    for pattern in _WEIGHTS:
        sizes = [path.stat().st_size / _GB for path in folder.glob(pattern)]
        if sizes:
            return sum(sizes), max(sizes), None
    return None, None, f"no weights ({', '.join(_WEIGHTS)}) in {model}"
