"""Stand-in for ``torchvision.transforms``: every transform can be imported and none can be made."""

from __future__ import annotations

import enum

from torchvision.absent import Unavailable  # type: ignore[import-not-found]


class InterpolationMode(enum.Enum):
    """The names that image processors read while they are imported."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def __getattr__(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (Unavailable,), {})


from . import functional  # noqa: E402 - it needs the names above

__all__ = ["InterpolationMode", "functional"]
