"""A write that outlasts a busy or vanished database: tried again, with growing pauses, for a bounded time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, InternalError, OperationalError

from storage.errors import StorageError
from storage.redaction import redact

# A database gone for 60 s must lose nothing; twice that, and somebody has to look.
PATIENCE_S = 120.0
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 3.0
# Waiting does not mend these.
_LASTING = (
    "no such table",
    "no such column",
    "readonly",
    "read-only",
    "not a database",
    "malformed",
    "too many sql variables",
)

T = TypeVar("T")


def passes(error: BaseException) -> bool:
    """Whether waiting may mend this error: busy, lost connection, restart, full disk."""
    if not isinstance(error, DBAPIError):
        return False
    if isinstance(error, IntegrityError) or any(sign in str(error.orig).lower() for sign in _LASTING):
        return False
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError | InternalError)


def first_line(error: BaseException) -> str:
    """What a database says, in one line and without passwords."""
    said = str(getattr(error, "orig", None) or error).strip() or type(error).__name__
    return redact(said.splitlines()[0].rstrip("."))


def durably(work: Callable[[int], T], what: str, where: str, patience_s: float = PATIENCE_S) -> T:
    """The answer of `work`, which is given the number of earlier tries so that it can look for what those left.

    Two processes that insert the same unique row meet as an IntegrityError: one more try finds the other's row.
    Raises StorageError, one sentence, when waiting does not help.
    """
    deadline = time.monotonic() + patience_s
    tries = collisions = 0
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return work(tries)
        except IntegrityError as error:
            collisions += 1
            if collisions > 5:
                raise StorageError(
                    f"Could not {what} in {where}: {first_line(error)}; was a row removed by hand?"
                ) from error
        except DBAPIError as error:
            if not passes(error):
                raise StorageError(f"Could not {what} in {where}: {first_line(error)}.") from error
            if time.monotonic() >= deadline:
                raise StorageError(
                    f"Could not {what} in {where} for {patience_s:.0f} s: {first_line(error)}; "
                    "see that the database is up and its disk has room, then start again: the study continues."
                ) from error
        tries += 1
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())) * random.uniform(0.7, 1.0))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
