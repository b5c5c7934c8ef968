"""A search that must not start, and why."""

from __future__ import annotations


class Refused(Exception):
    """Bad input or a busy machine, found before anything was started; one sentence with the remedy."""
