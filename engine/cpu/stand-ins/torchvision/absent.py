"""What every name of this stand-in is: importable, and a sentence as soon as it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def functions_of(module: str) -> Callable[[str], Callable[..., NoReturn]]:
    """A module ``__getattr__`` whose every name is a function that refuses to run."""

    def function(name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def refuse(*_: object, **__: object) -> NoReturn:
            raise RuntimeError(f"{module}.{name} is not available: torchvision is a stand-in here, without images")

        return refuse

    return function


class Unavailable:
    """A class that imports and cannot be made."""

    def __init__(self, *_: object, **__: object) -> None:
        raise RuntimeError("image transforms are not available: torchvision is a stand-in here")
