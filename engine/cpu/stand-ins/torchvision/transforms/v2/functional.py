"""Stand-in for ``torchvision.transforms.v2.functional``."""

from torchvision.transforms.functional import (  # type: ignore[import-not-found]
    InterpolationMode,
    __getattr__,
)

__all__ = ["InterpolationMode", "__getattr__"]
