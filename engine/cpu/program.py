"""The program that the CPU engine is: which interpreter, and which variables make SGLang run there."""

from __future__ import annotations

import os
from pathlib import Path

from engine.program import Program

STAND_INS = Path(__file__).resolve().parent / "stand-ins"


def python_of(environment: Path) -> Path:
    """The interpreter of a virtual environment."""
    return environment / "bin" / "python"


def cpu_environment() -> dict[str, str]:
    """The variables that every Python of the CPU engine needs (``PYTHONPATH`` keeps what was in ours behind it)."""
    behind = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{STAND_INS}{os.pathsep}{behind}" if behind else str(STAND_INS),
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",
        # more threads wait for each other in spins, and stand still on a shared machine
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }


def cpu_program(interpreter: Path) -> Program:
    """SGLang's server on the CPU, run by ``interpreter``."""
    return Program((str(interpreter), "-m", "sglang.launch_server"), cpu_environment())
