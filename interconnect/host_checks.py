"""Checks of what the engine needs from the host: power, foreign processes, memory, compilers, versions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from interconnect.checks import Check, Machine, bad

# NCCL keeps a few MB a rank and channel in /dev/shm, SGLang's processes and torch's loaders more; a container's default
# is 64 MB.
_SHARED_MEMORY_GB = 1.0
_SWAP_USED_GB = 0.5
_CUDA_RUNTIMES = ("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu13", "nvidia-cuda-runtime-cu12")
_COMPILED = ("torch", "flashinfer-python", "sglang-kernel", "transformers", "xgrammar", "sgl-deep-gemm", "triton")
_ONE_VERSION = ("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache")


def power(machine: Machine) -> Iterator[Check]:
    """Limits of power and clocks."""
    for gpu in machine.topology.gpus:
        name = f"power and clocks of GPU {gpu.index}"
        if gpu.power_limit_w and gpu.power_default_w and gpu.power_limit_w < 0.98 * gpu.power_default_w:
            yield bad(
                name,
                f"limit {gpu.power_limit_w:.0f} W of {gpu.power_default_w:.0f} W",
                "warning",
                f"GPU {gpu.index} may use {gpu.power_limit_w:.0f} W of its {gpu.power_default_w:.0f} W.",
                "Nothing at concurrency 1 to 4; 16 to 29 % of throughput at 16 to 64 was seen.",
                f"nvidia-smi -i {gpu.index} -pl {gpu.power_default_w:.0f}, where power and cooling allow it.",
            )
            continue
        hot = [reason for reason in gpu.slowed_by if reason not in ("application clocks", "power cap")]
        if hot:
            yield bad(
                name,
                ", ".join(gpu.slowed_by),
                "warning",
                f"GPU {gpu.index} is slowed down: {', '.join(hot)}.",
                "Clocks, and with them throughput, fall during a measurement.",
                "Improve the airflow or lower the power limit until it holds its clocks.",
            )
        elif gpu.clock_limit_mhz and gpu.clock_max_mhz and gpu.clock_limit_mhz < 0.9 * gpu.clock_max_mhz:
            yield bad(
                name,
                f"{gpu.clock_limit_mhz} MHz of {gpu.clock_max_mhz}",
                "note",
                f"The application clock of GPU {gpu.index} is {gpu.clock_limit_mhz} MHz of {gpu.clock_max_mhz}.",
                "Kernels run slower by as much, where they are not bound by memory or PCIe.",
                f"nvidia-smi -i {gpu.index} -rac resets it.",
            )
        elif gpu.power_limit_w:
            yield Check(name, f"limit {gpu.power_limit_w:.0f} W, not lowered")


def foreign_processes(machine: Machine) -> Iterator[Check]:
    """Who else is on the GPUs."""
    if not machine.topology.gpus:
        return
    if not machine.foreign:
        yield Check("other processes on the GPUs", "none")
        return
    yield bad(
        "other processes on the GPUs",
        "; ".join(one.sentence() for one in machine.foreign[:4]),
        "error",
        f"{len(machine.foreign)} processes that are not ours compute on these GPUs.",
        "Starts fail for lack of memory, and no measurement can be believed.",
        "End them, or choose other GPUs with CUDA_VISIBLE_DEVICES.",
    )


def shared_memory(machine: Machine) -> Iterator[Check]:
    """/dev/shm, through which NCCL and the engine's processes talk."""
    total, free = machine.host.shared_memory_gb, machine.host.shared_memory_free_gb
    if total is None or free is None:
        yield Check("/dev/shm", "there is none that can be read", "unknown")
        return
    reading = f"{free:.2f} GB free of {total:.2f}"
    if free >= _SHARED_MEMORY_GB:
        yield Check("/dev/shm", reading)
        return
    full = total >= _SHARED_MEMORY_GB
    yield bad(
        "/dev/shm",
        reading,
        "error" if len(machine.topology.gpus) > 1 else "warning",
        "/dev/shm is full." if full else "/dev/shm is too small.",
        "NCCL fails with 'Error while creating shared memory segment', or a rank dies of SIGBUS.",
        "Remove stale files (ls /dev/shm)." if full else "Start the container with --ipc=host or --shm-size=16g.",
    )


def memory(machine: Machine) -> Iterator[Check]:
    """Host memory, against the weights that pass through it."""
    host, ranks = machine.host, max(1, len(machine.topology.gpus))
    if host.memory_gb is None or host.memory_available_gb is None:
        yield Check("host memory", "cannot be read", "unknown")
        return
    reading = f"{host.memory_available_gb:.1f} GB available of {host.memory_gb:.1f}"
    if host.weights_gb is None:
        yield Check("host memory", reading)
    elif host.memory_available_gb < min(host.weights_gb, (host.largest_shard_gb or 0) * min(ranks, 2)):
        yield bad(
            "host memory",
            f"{reading}; weights {host.weights_gb:.1f} GB, largest file {host.largest_shard_gb:.1f} GB",
            "error",
            "Not even two files of the weights fit into the available memory.",
            "The system kills a rank while it loads (exit status -9).",
            "Free memory, raise the container's limit, or load with --weight-loader-drop-cache-after-load.",
        )
    elif host.memory_gb < host.weights_gb:
        yield bad(
            "host memory",
            f"{reading}; weights {host.weights_gb:.1f} GB",
            "warning",
            "The weights do not fit into host memory.",
            "Every launch reads them from the disk again, minutes instead of seconds.",
            "Give the host more memory than the weights have, or put them on the fastest disk.",
        )
    else:
        yield Check("host memory", f"{reading}; weights {host.weights_gb:.1f} GB")


def weights(machine: Machine) -> Iterator[Check]:
    """The weights, against the memory of the GPUs."""
    host = machine.host
    if host.weights_missing:
        yield bad(
            "weights",
            host.weights_missing,
            "error",
            f"The model's weights were not found: {host.weights_missing}.",
            "No engine can start.",
            "Download the model to a folder and name that folder in the space.",
        )
    sizes = [gpu.memory_gb for gpu in machine.topology.gpus if gpu.memory_gb]
    if host.weights_gb is None or not sizes:
        return
    reading = f"{host.weights_gb:.1f} GB for {sum(sizes):.0f} GB on {len(sizes)} GPUs"
    if host.weights_gb > 0.95 * sum(sizes):
        yield bad(
            "weights",
            reading,
            "error",
            "The weights do not fit into the memory of all GPUs together.",
            "Every start ends with 'out of memory'.",
            "Use a checkpoint of fewer bits, or more GPUs.",
        )
    else:
        yield Check("weights", reading)


def swap(machine: Machine) -> Iterator[Check]:
    """Swap in use."""
    used = machine.host.swap_used_gb
    if used is None:
        return
    if used > _SWAP_USED_GB:
        yield bad(
            "swap",
            f"{used:.1f} GB in use",
            "warning",
            "Parts of running processes have been moved to the disk.",
            "Pauses of the engine's processes, seen as noise and as timeouts.",
            "Free memory, then swapoff -a && swapon -a.",
        )
    else:
        yield Check("swap", f"{used:.1f} GB in use")


def compilers(machine: Machine) -> Iterator[Check]:
    """What compiles kernels at the first start."""
    absent = [name for name, path in machine.host.compilers.items() if path is None]
    reading = ", ".join(f"{name} {path or 'missing'}" for name, path in machine.host.compilers.items())
    if absent and machine.topology.gpus:
        yield bad(
            "compilers",
            reading,
            "warning",
            f"{', '.join(absent)} cannot be found.",
            "A kernel that is not yet compiled ends the start ('Could not find nvcc', 'ninja: build stopped').",
            "Install the CUDA toolkit of torch's CUDA version (set CUDA_HOME), pip install ninja, and a C++ compiler.",
        )
    else:
        yield Check("compilers", reading)


def versions(machine: Machine) -> Iterator[Check]:
    """What the engine's interpreter has installed."""
    installation = machine.installation
    if installation is None:
        return
    if installation.unreadable:
        yield bad(
            "engine's versions",
            installation.unreadable,
            "error",
            "The engine's interpreter does not answer.",
            "No engine can start.",
            "Name the Python that has SGLang installed, in the space (engine: interpreter) or with --interpreter.",
        )
        return
    have = installation.versions
    reading = ", ".join(f"{name} {have[name]}" for name in ("python", "sglang", "torch") if name in have)
    if "sglang" not in have:
        yield bad(
            "engine's versions",
            reading,
            "error",
            "SGLang is not installed in the engine's interpreter.",
            "No engine can start.",
            "pip install sglang there, or name another interpreter.",
        )
    elif installation.unmet:
        # compiled parts first: those are what fails
        unmet = sorted(installation.unmet, key=lambda one: (one[0] not in _COMPILED, not one[2], one[0]))
        worst = "; ".join(f"{name} {there or 'missing'}, wanted {wanted or 'any'}" for name, wanted, there in unmet[:6])
        yield bad(
            "engine's versions",
            f"{reading}; {len(installation.unmet)} requirements of SGLang unmet",
            # an engine for the CPU has and needs few of them
            "warning" if machine.topology.gpus else "note",
            f"Not what this SGLang asks for: {worst}.",
            "Undefined symbols at import, or kernels that fail at the first forward pass.",
            "pip install --upgrade the named packages to the versions that SGLang asks for.",
        )
    else:
        yield Check("engine's versions", reading)
    trio = {name: have[name].split("+")[0] for name in _ONE_VERSION if name in have}
    if len({re.sub(r"\.post\d+$", "", version) for version in trio.values()}) > 1:
        yield bad(
            "FlashInfer",
            ", ".join(f"{name} {version}" for name, version in trio.items()),
            "error",
            "FlashInfer's packages are of different versions.",
            "Its import raises.",
            "Install all of them in one version.",
        )
    yield from _cuda(machine, have)


def _cuda(machine: Machine, have: Mapping[str, str]) -> Iterator[Check]:
    driver = machine.topology.cuda_driver
    runtime = next((have[name] for name in _CUDA_RUNTIMES if name in have), None)
    if driver is None or runtime is None:
        return
    wanted = int(runtime.split(".")[0])
    reading = f"driver for CUDA {driver // 1000}.{driver % 1000 // 10}, runtime {runtime}"
    if driver // 1000 < wanted:
        yield bad(
            "CUDA",
            reading,
            "error",
            f"The driver is for CUDA {driver // 1000}, the engine's torch for CUDA {wanted}.",
            "CUDA does not initialise.",
            f"Install a driver for CUDA {wanted}, or wheels for CUDA {driver // 1000}.",
        )
    else:
        yield Check("CUDA", reading)


CHECKS = (power, foreign_processes, shared_memory, memory, weights, swap, compilers, versions)
