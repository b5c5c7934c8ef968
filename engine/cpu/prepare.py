"""``python -m engine.cpu.prepare --venv DIR``: everything that a CPU search needs, installed and unpacked once.

Prints the interpreter's path and the model's path, a line each; a second run is done in a tenth of a second.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from engine.cpu.install import TORCH_INDEX_VARIABLE, InstallationFailed, install
from engine.cpu.small_model import ModelUnavailable, models_folder, unpack


def main() -> int:
    """Install the real SGLang for the CPU and unpack the small model."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.cpu.prepare",
        description=main.__doc__,
        epilog=f"{TORCH_INDEX_VARIABLE} names a pip index that has CPU builds of torch.",
    )
    parser.add_argument("--venv", type=Path, default=Path(".sglang-cpu"), help="the environment (default: .sglang-cpu)")
    parser.add_argument("--models", type=Path, help=f"folder to unpack the model into (default: {models_folder()})")
    arguments = parser.parse_args()
    try:
        print(install(arguments.venv.absolute()))
        print(unpack(arguments.models.absolute() if arguments.models else None))
    except (InstallationFailed, ModelUnavailable) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run it again to finish", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
