"""The one error that leaves this room."""

from __future__ import annotations


class StorageError(Exception):
    """What could not be stored or read: one sentence with the thing, the value and the remedy; never a password."""
