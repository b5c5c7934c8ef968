"""What may vary: a YAML file a space, its reader, its rules, and how an Optuna trial becomes a configuration."""

from search_spaces.errors import SpaceError
from search_spaces.reader import load, shipped
from search_spaces.space import Assignment, Space

__all__ = ["Assignment", "Space", "SpaceError", "load", "shipped"]
