"""Names that can be imported and not called."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NoReturn


class Missing:
    """A kernel without a version here."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel stand-in: {self.__name__} was called and has no version for the CPU")

    def __repr__(self) -> str:
        return f"<sgl_kernel stand-in {self.__name__}>"


def module_of_missing_names(path: str) -> ModuleType:
    """A module, registered under ``path``, in which every name is missing."""
    module = ModuleType(path)

    def missing_name(name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{path}.{name}")

    module.__getattr__ = missing_name  # type: ignore[method-assign]
    module.__path__ = []
    sys.modules[path] = module
    return module
