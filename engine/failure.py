"""A failure: why an engine did not start, or died."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

Blame = Literal["configuration", "environment", "transient", "unknown"]


@dataclass(frozen=True)
class Failure:
    """What went wrong, where, and whose fault it is.

    Attributes:
        rank: rank of the first cause (``TP3``; ``main`` for the parent; ``None`` where no rank is to blame).
        phase: the phase it was in (``engine.phase.PHASES``, ``arguments`` before them, ``serving`` after them).
        cause: one sentence.
        blame: ``configuration`` (never again), ``environment`` (stop, mend), ``transient`` (retry), ``unknown``.
        remedy: what to do, one sentence; empty where nothing is known.
        evidence: the lines of the log that say so, at most a few thousand characters.
    """

    rank: str | None
    phase: str
    cause: str
    blame: Blame
    remedy: str
    evidence: str

    def as_dict(self) -> dict[str, str | None]:
        """A plain dictionary, as stored in the study."""
        return asdict(self)

    def sentence(self) -> str:
        """One line: rank, phase and cause."""
        where = f"{self.rank}, {self.phase}" if self.rank else self.phase
        return f"{where}: {self.cause}"


class EngineFailed(Exception):
    """An engine did not become ready, or died while serving."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence())
        self.failure = failure
