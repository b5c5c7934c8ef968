"""The shape of a check: a reading, and, where it is bad, what is wrong, what that costs and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from engine.gpus import ForeignProcess
from interconnect.host import EngineInstallation, Host
from interconnect.topology import Topology

# fine: as it should be. unknown: cannot be read here. note: worth knowing. warning: costs speed. error: will not work.
Severity = Literal["fine", "unknown", "note", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """Three sentences."""

    wrong: str
    cost: str
    change: str


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``finding`` is there exactly when ``severity`` is ``note``, ``warning`` or ``error``."""

    name: str
    reading: str
    severity: Severity = "fine"
    finding: Finding | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as written in JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Machine:
    """Everything that the checks look at; recorded ones in tests."""

    topology: Topology = field(default_factory=Topology)
    host: Host = field(default_factory=Host)
    installation: EngineInstallation | None = None
    foreign: Sequence[ForeignProcess] = ()


def bad(name: str, reading: str, severity: Severity, wrong: str, cost: str, change: str) -> Check:
    """A check with a finding."""
    return Check(name, reading, severity, Finding(wrong, cost, change))
