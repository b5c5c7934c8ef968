"""Installs the real SGLang for a CPU into a virtual environment of its own (about 1.7 GB).

``QUIETLANE_TORCH_INDEX`` names a pip index that has CPU builds of torch; without it pip's own index is asked, where a
build with gigabytes of CUDA may be the default. Progress goes to standard error, one line a step.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from engine.cpu.program import cpu_environment, python_of

HERE = Path(__file__).resolve().parent
TORCH = HERE / "requirements-torch.txt"
REQUIREMENTS = HERE / "requirements.txt"
ALONE = HERE / "requirements-alone.txt"
TORCH_INDEX_VARIABLE = "QUIETLANE_TORCH_INDEX"
STAMP = "quietlane-installed"
# What a server and its benchmark import: proves the installation, and leaves the bytecode that pip did not make.
IMPORTED = (
    "sglang.srt.entrypoints.http_server",
    "sglang.srt.managers.scheduler",
    "sglang.srt.managers.detokenizer_manager",
    "sglang.srt.models.qwen3_next_mtp",
    "sglang.benchmark.serving",
)
LAST_LINES = 12  # of pip's output, shown when it fails


class InstallationFailed(Exception):
    """The CPU engine could not be installed."""


def fingerprint() -> str:
    """What an environment must have been installed from to be up to date: the pins and the version of Python."""
    pins = b"".join(path.read_bytes() for path in (TORCH, REQUIREMENTS, ALONE))
    return hashlib.sha256(pins + f"python {sys.version_info.major}.{sys.version_info.minor}".encode()).hexdigest()


def is_installed(environment: Path) -> bool:
    """Whether ``environment`` holds a finished installation of just these pins."""
    stamp = environment / STAMP
    return python_of(environment).exists() and stamp.exists() and stamp.read_text().strip() == fingerprint()


def install(environment: Path, variables: Mapping[str, str] = os.environ) -> Path:
    """Install into ``environment`` unless it is up to date, and return its interpreter.

    What an interrupted installation left is removed first, as is a finished one of other pins. A folder that is no
    virtual environment is left alone and refused.

    Raises:
        InstallationFailed: a step failed (with the last lines of pip), or the folder is something else.
    """
    if is_installed(environment):
        return python_of(environment)
    begin = time.monotonic()
    if environment.exists() and any(environment.iterdir()):
        if not (environment / "pyvenv.cfg").exists():
            raise InstallationFailed(f"{environment} is no virtual environment and not empty; name another folder")
        _say(f"removing what is left in {environment}")
        shutil.rmtree(environment)
    _say(f"making {environment} (Python {sys.version_info.major}.{sys.version_info.minor})")
    _run("making the virtual environment", [sys.executable, "-m", "venv", str(environment)])
    for step, arguments in _steps(variables.get(TORCH_INDEX_VARIABLE) or None):
        _say(step)
        _run(step, _pip(environment, arguments))
    _say("importing SGLang once")
    _run(
        "importing SGLang", [str(python_of(environment)), "-c", f"import {', '.join(IMPORTED)}"], _import_environment()
    )
    (environment / STAMP).write_text(fingerprint() + "\n")
    _say(f"installed in {time.monotonic() - begin:.0f} s")
    return python_of(environment)


def _steps(torch_index: str | None) -> list[tuple[str, list[str]]]:
    """(what is said, arguments of ``pip install``) in their order."""
    steps = []
    if torch_index:
        # The build comes from that index alone, and what it depends on from pip's own, which has it for certain.
        arguments = ["--index-url", torch_index, "--no-deps", "-r", str(TORCH)]
        steps.append((f"installing torch from {torch_index}", arguments))
    steps.append(("installing torch and what SGLang imports", ["-r", str(TORCH), "-r", str(REQUIREMENTS)]))
    steps.append(("installing SGLang", ["--no-deps", "-r", str(ALONE)]))
    return steps


def _pip(environment: Path, arguments: Sequence[str]) -> list[str]:
    # Bytecode is left to our own import: compiling all of torch costs a minute more than the modules that are used.
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]
    return [str(python_of(environment)), "-m", "pip", "install", *quiet, *arguments]


def _import_environment() -> dict[str, str]:
    """The engine's environment, with bytecode written even where ours forbids it."""
    return {**os.environ, **cpu_environment(), "PYTHONDONTWRITEBYTECODE": ""}


def _run(step: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    ran = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if ran.returncode != 0:
        tail = "\n".join(ran.stdout.decode(errors="replace").strip().splitlines()[-LAST_LINES:])
        raise InstallationFailed(
            f"{step} failed with exit status {ran.returncode}; run it again when this is mended:\n{tail}"
        )


def _say(line: str) -> None:
    print(f"quietlane engine: {line}", file=sys.stderr, flush=True)
