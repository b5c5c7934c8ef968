"""Stand-in for ``torchvision.transforms.functional``."""

from torchvision.absent import functions_of  # type: ignore[import-not-found]

from . import InterpolationMode

__all__ = ["InterpolationMode"]
__getattr__ = functions_of(__name__)
