"""Stand-in for ``torchvision``, so that a server of text models imports on a CPU without it."""

from . import io, ops, transforms

__version__ = "0.0.0+standin"
__all__ = ["io", "ops", "transforms"]
