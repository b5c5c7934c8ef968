"""What Prefect must find in the environment before it is imported: quiet, offline, patient."""

from __future__ import annotations

import importlib
import os
import sys

_THREADS = "OPENBLAS_NUM_THREADS"
_DEFAULTS = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    # The temporary server takes 10 to 15 s to start, several times that on a busy machine; the default gives up at 20.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
}


# Where quietlane speaks to a terminal itself, Prefect's console shows its errors alone.
_ON_A_TERMINAL = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "ERROR"}


def prepare(*, on_a_terminal: bool = False) -> None:
    """Set what is not set already; call it before the first import of Prefect."""
    for name, value in {**_DEFAULTS, **(_ON_A_TERMINAL if on_a_terminal else {})}.items():
        os.environ.setdefault(name, value)
    _calm_numpy()


def _calm_numpy() -> None:
    """Import numpy with one thread: the sampler's matrices are small, and threads made them twenty times slower here.

    The variable is gone again before an engine could inherit it.
    """
    if "numpy" in sys.modules or _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        importlib.import_module("numpy")
    finally:
        del os.environ[_THREADS]
