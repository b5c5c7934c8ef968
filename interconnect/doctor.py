"""``quietlane doctor``: examines this machine and says what is wrong, what it costs and what to change.

Exit status: 0 when nothing is wrong (notes and what cannot be read do not count), 1 when something costs speed, 2 when
something will keep an engine from starting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from engine.gpus import foreign_processes, visible_gpus
from interconnect import host_checks, link_checks
from interconnect.checks import Check, Machine
from interconnect.host import ask_interpreter, read_host
from interconnect.topology import Topology, way
from interconnect.topology_reading import read_topology

CHECKS: tuple[Callable[[Machine], Iterator[Check]], ...] = (*link_checks.CHECKS, *host_checks.CHECKS)
_MARKS = {"fine": "ok     ", "unknown": "?      ", "note": "note   ", "warning": "WARNING", "error": "ERROR  "}


@dataclass(frozen=True)
class Report:
    """All checks of one machine, and its topology."""

    checks: tuple[Check, ...]
    topology: Topology

    @property
    def findings(self) -> tuple[Check, ...]:
        """Checks that found something, worst first."""
        found = [check for check in self.checks if check.finding]
        return tuple(sorted(found, key=lambda check: ("error", "warning", "note").index(check.severity)))

    @property
    def exit_status(self) -> int:
        """0: nothing wrong; 1: something costs speed; 2: something will keep an engine from starting."""
        severities = {check.severity for check in self.checks}
        return 2 if "error" in severities else 1 if "warning" in severities else 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``--json`` writes them."""
        return {
            "exit_status": self.exit_status,
            "checks": [check.as_dict() for check in self.checks],
            "topology": self.topology.as_dict(),
        }


def judge(machine: Machine) -> Report:
    """Every check on what was read; reads nothing itself."""
    return Report(tuple(check for look in CHECKS for check in look(machine)), machine.topology)


def examine(interpreter: str | None = None, model: str | None = None) -> Report:
    """Read this machine and judge it. ``interpreter`` is the engine's Python, ``model`` the folder of the weights."""
    installation = ask_interpreter(interpreter) if interpreter else None
    indices = [gpu.index for gpu in visible_gpus()]
    return judge(
        Machine(
            read_topology(),
            read_host(model, installation.folders if installation else ()),
            installation,
            foreign_processes(indices),
        )
    )


def run(as_json: bool, out: TextIO, interpreter: str | None = None, model: str | None = None) -> int:
    """Examine, print, and return the exit status."""
    report = examine(interpreter, model)
    if as_json:
        out.write(json.dumps(report.as_dict(), indent=1) + "\n")
    else:
        out.write(as_text(report))
    return report.exit_status


def as_text(report: Report) -> str:
    """The report for a person: a line a check, then the findings, worst first."""
    lines = [f"{_MARKS[check.severity]}  {check.name}: {check.reading}" for check in report.checks]
    lines += _pairs(report.topology)
    for check in report.findings:
        assert check.finding is not None
        lines += [
            "",
            f"{check.severity.upper()}: {check.finding.wrong}",
            f"  costs:  {check.finding.cost}",
            f"  change: {check.finding.change}",
        ]
    count = len([check for check in report.findings if check.severity != "note"])
    lines += ["", "nothing wrong was found" if not count else f"{count} thing{'s' if count > 1 else ''} to mend"]
    return "\n".join(lines) + "\n"


def _pairs(topology: Topology) -> list[str]:
    """The matrix of relations, a row a GPU."""
    if not topology.pairs:
        return []
    words = {(pair.first, pair.second): pair.relation or "?" for pair in topology.pairs}
    lines = ["", "way between the GPUs"]
    for gpu in topology.gpus:
        row = (
            "-" if gpu.index == other.index else words[min(gpu.index, other.index), max(gpu.index, other.index)]
            for other in topology.gpus
        )
        place = f"NUMA {gpu.numa_node}" if gpu.numa_node is not None else ""
        lines.append(
            f"  GPU{gpu.index}  " + " ".join(f"{word:<5}" for word in row) + f" {place} {gpu.cpu_affinity or ''}"
        )
    known = sorted({pair.relation for pair in topology.pairs if pair.relation})
    return [*lines, "  " + "; ".join(f"{word}: {way(word)}" for word in known)]
