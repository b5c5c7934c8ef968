"""Runs at the start of every Python of the CPU engine: gives it a Triton to import, and the patches of ``cpu_patches``.

SGLang carries a Triton stand-in of its own for macOS (``sglang/_platform_stubs.py``). The part of that file that makes
it is run here, without importing SGLang, so that Linux without Triton gets the same one.
"""

from __future__ import annotations

import importlib.util  # noqa: F401 - SGLang's file uses it and imports `importlib` only
import sys
import textwrap
from pathlib import Path


def install_triton_stand_in() -> None:
    """Run the Triton part of SGLang's own macOS stand-ins; nothing where SGLang is not installed."""
    for folder in sys.path:
        stubs = Path(folder) / "sglang" / "_platform_stubs.py"
        if stubs.exists():
            break
    else:
        return
    before, installer = stubs.read_text().split("def install_platform_stubs()", 1)
    classes = before.split("class Stream:", 1)[0]
    start, end = installer.index('    if "triton" not in sys.modules'), installer.index("    mps = torch.mps")
    scope = {"__name__": "_triton_standin", "__file__": str(stubs)}
    exec(compile(classes, str(stubs), "exec"), scope)
    exec(compile(textwrap.dedent(installer[start:end]), str(stubs), "exec"), scope)


# A failure here must not keep Python from starting: it is said, and the engine's own error follows.
try:
    install_triton_stand_in()
except Exception as error:
    print("triton stand-in failed:", error, file=sys.stderr)
try:
    import cpu_patches  # type: ignore[import-not-found]

    cpu_patches.install()
except Exception as error:
    print("cpu patches failed:", error, file=sys.stderr)
