"""Stand-in for ``torchvision.ops``."""

from .absent import functions_of

__getattr__ = functions_of(__name__)
