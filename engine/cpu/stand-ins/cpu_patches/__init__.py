"""Torch versions of the few Triton-only functions on SGLang's CPU path.

Each is put in place right after its module of SGLang is imported. Torch comes in with the patches only then, so that a
Python that needs no engine starts as fast as before.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# Module of SGLang: the module here whose ``patch`` replaces names in it.
PATCHES = {
    "sglang.kernels.ops.elementwise.elementwise": "shared_expert_gate",
    "sglang.kernels.ops.attention.fla.fused_norm_gate": "norm_gate",
    "sglang.kernels.ops.mamba.mamba_state_scatter_triton": "mamba_states",
    "sglang.srt.speculative.eagle_utils": "sampled_verify",
}


class _PatchingLoader(importlib.abc.Loader):
    """Loads as the real loader does, then patches."""

    def __init__(self, real: Any, patch: str) -> None:
        self.real = real
        self.patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.real.exec_module(module)
        importlib.import_module(f"cpu_patches.{self.patch}").patch(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)


class _PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of ``PATCHES`` through the other finders and hands them to a patching loader."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patch = PATCHES.get(name)
        if patch is None:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _PatchingLoader(spec.loader, patch)
                return spec
        return None


def install() -> None:
    """Watch the imports of this process for the modules of ``PATCHES``."""
    sys.meta_path.insert(0, _PatchingFinder())
