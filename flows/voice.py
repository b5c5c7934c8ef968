"""Where the flow's sentences go: the run's own log in Prefect, and the terminal of whoever started it by hand."""

from __future__ import annotations

import logging

from prefect.exceptions import MissingContextError
from prefect.logging import get_run_logger
from rich.console import Console

_terminal: Console | None = None


def speak_on(console: Console | None) -> None:
    """Print what is said on this terminal too."""
    global _terminal  # noqa: PLW0603 - one terminal a process
    _terminal = console


def say(sentence: str, *, warning: bool = False) -> None:
    """One sentence into the run's log and onto the terminal."""
    try:
        logger = get_run_logger()
        (logger.warning if warning else logger.info)(sentence)
    except MissingContextError:
        logging.getLogger("quietlane").log(logging.WARNING if warning else logging.INFO, sentence)
    if _terminal is not None:
        _terminal.print(sentence, style="yellow" if warning else None, markup=False, highlight=False, soft_wrap=True)
