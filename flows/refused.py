"""A search that must not start, and why."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - reads as what happened
    """Bad input or a busy machine, found before anything was started; one sentence with the remedy."""
