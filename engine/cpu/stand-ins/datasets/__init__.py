"""Stand-in for ``datasets``: SGLang imports the name for evaluation sets that a server never loads."""

from __future__ import annotations

from typing import NoReturn


def load_dataset(*_: object, **__: object) -> NoReturn:
    """Always refuse: nothing here downloads data sets."""
    raise RuntimeError("`datasets` is a stand-in here and loads nothing; install the real package to use data sets")
