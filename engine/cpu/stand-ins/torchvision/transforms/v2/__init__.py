"""Stand-in for ``torchvision.transforms.v2``: the same names as the first version."""

from torchvision.transforms import (  # type: ignore[import-not-found]
    InterpolationMode,
    __getattr__,
)

from . import functional

__all__ = ["InterpolationMode", "__getattr__", "functional"]
