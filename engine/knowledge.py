"""Whose fault a trouble is: the knowledge base ``knowledge.yaml`` and the rules over several launches.

A row is data: what the log says (`pattern`), in which phases if it matters, whom to blame, why, and what to do. Rows
are tried in the order of the file, special before general. `harmless` rows are noise that never is a cause, `peer`
rows say only that another process is gone. Rows marked `either` may be the fault of the one or the other: their blame
is the likelier one until several launches decide (`blame_over_launches`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

from engine.failure import Blame, Failure

RowBlame = Literal["configuration", "environment", "transient", "unknown", "harmless", "peer"]

_BLAMES: dict[RowBlame, Blame] = {
    "configuration": "configuration",
    "environment": "environment",
    "transient": "transient",
    "unknown": "unknown",
    "harmless": "unknown",
    "peer": "unknown",
}
_ALIKE = 3  # different configurations that fail alike before it is the environment's fault
_CAUSE, _EVIDENCE = 400, 4000  # characters kept


@dataclass(frozen=True)
class Row:
    """One thing that is known; ``contains`` are literals of which each match has one (empty: always try).

    ``noise`` is a literal that proves a line harmless; ``exit_statuses`` (negative: signals) are those that this row
    explains.
    """

    name: str
    pattern: re.Pattern[str]
    contains: tuple[str, ...]
    blame: RowBlame
    cause: str
    remedy: str
    source: str
    phases: frozenset[str]
    versions: str
    stalled: bool
    exit_statuses: frozenset[int]
    noise: str
    either: bool
    general: bool


@cache
def rows() -> tuple[Row, ...]:
    """The knowledge base, in the order in which it is tried."""
    text = resources.files("engine").joinpath("knowledge.yaml").read_text(encoding="utf-8")
    data: list[dict[str, Any]] = yaml.safe_load(text)["rows"]
    return tuple(
        Row(
            name=row["name"],
            pattern=re.compile(row["pattern"], re.DOTALL | re.MULTILINE) if "pattern" in row else re.compile(r"(?!)"),
            contains=tuple(row.get("contains", ())),
            blame=row["blame"],
            cause=row.get("cause", ""),
            remedy=row.get("remedy", ""),
            source=row.get("source", ""),
            phases=frozenset(row.get("phases", ())),
            versions=row.get("versions", ""),
            stalled=row.get("stalled", False),
            exit_statuses=frozenset(row.get("exit_statuses", ())),
            noise=row.get("noise", ""),
            either=row.get("either", False),
            general=row.get("general", False),
        )
        for row in data
    )


def find(
    text: str, phase: str = "", *, stalled: bool = False, general: bool = False
) -> tuple[Row, re.Match[str]] | None:
    """The first row, particular or general, that knows this text (in this phase, where the row minds)."""
    for row in rows():
        if row.general != general or (row.stalled and not stalled):
            continue
        if row.phases and phase not in row.phases:
            continue
        if row.contains and not any(literal in text for literal in row.contains):
            continue
        match = row.pattern.search(text)
        if match is not None:
            return row, match
    return None


def is_peer(text: str) -> bool:
    """The text only says that another process is gone."""
    return any(row.blame == "peer" and row.pattern.search(text) for row in rows())


@cache
def _noise() -> tuple[bytes, ...]:
    return tuple(row.noise.encode() for row in rows() if row.noise)


def is_noise(line: bytes) -> bool:
    """The line is known to be harmless, before any decoding."""
    for literal in _noise():  # a loop, not any(): it is the hottest line of a log full of warnings
        if literal in line:
            return b"Traceback" not in line
    return False


def find_exit(exit_status: int | None) -> Row | None:
    """What is known of an exit status when the log gives no reason (negative: a signal, as ``subprocess`` has it)."""
    if exit_status is None:
        return None
    signal = 128 - exit_status if exit_status > 128 else exit_status
    return next((row for row in rows() if signal in row.exit_statuses or exit_status in row.exit_statuses), None)


def classify(
    evidence: str | Sequence[str],
    phase: str,
    rank: str | None,
    exit_status: int | None = None,
    version: str | None = None,
    *,
    cause: str | None = None,
    stalled: bool = False,
) -> Failure:
    """The failure that this evidence speaks of; ``unknown`` and kept whole where the knowledge base does not know it.

    ``cause`` is the log's own statement (default: the last line of the evidence); it is looked up first, then the whole
    evidence, then the exit status.
    """
    whole = evidence if isinstance(evidence, str) else "\n".join(evidence)
    said = cause if cause is not None else next((line for line in reversed(whole.splitlines()) if line.strip()), "")
    peer: Row | None = None
    for text, general in ((said, False), (whole, False), (said, True)):
        hit = find(text, phase, stalled=stalled, general=general)
        if hit is not None and hit[0].blame == "peer":
            peer = peer or hit[0]
        elif hit is not None and hit[0].blame != "harmless":
            return _failure(hit[0], hit[1].groupdict(), said, phase, rank, whole)
    row = find_exit(exit_status)
    if row is not None and (not said or peer is not None):
        return _failure(row, {"status": str(exit_status)}, said, phase, rank, whole)
    if peer is not None:
        return Failure(rank, phase, _cut(f"{peer.cause} ({said})"), "unknown", peer.remedy, whole[-_EVIDENCE:])
    return Failure(rank, phase, _cut(said or _ended(exit_status)), "unknown", "", whole[-_EVIDENCE:])


def _ended(exit_status: int | None) -> str:
    if exit_status is None:
        return "The engine ended without saying why."
    return f"The engine ended with exit status {exit_status} without saying why."


def _failure(row: Row, groups: dict[str, str | None], said: str, phase: str, rank: str | None, whole: str) -> Failure:
    filled = {name: (text or "").strip() for name, text in groups.items()}
    cause = _fill(row.cause, filled)
    if said and said not in cause:
        cause = f"{cause} ({said})" if cause else said
    blame = _BLAMES[row.blame]
    return Failure(rank, phase, _cut(cause), blame, _fill(row.remedy, filled), whole[-_EVIDENCE:])


def _fill(template: str, groups: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: groups.get(match[1], match[0]), template)


def _cut(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= _CAUSE else one_line[: _CAUSE - 1] + "…"


_VOLATILE = (
    (re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{12,}\b"), "<hex>"),
    (re.compile(r"(?:/[\w.@+-]+){2,}/?"), "<path>"),
    (re.compile(r"\b\d+(?:\.\d+)*(?:e[+-]?\d+)?\b"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def signature(failure: Failure) -> str:
    """What failures of one kind share: phase and cause without numbers, paths and addresses; the rank is left out."""
    text = failure.cause
    for pattern, name in _VOLATILE:
        text = pattern.sub(name, text)
    return f"{failure.phase}: {text.strip()[:240]}"


def blame_over_launches(
    failures: Sequence[tuple[str, Failure]],
    baseline_failed: bool = False,
    baseline_passed: bool = False,
    alike: int = _ALIKE,
) -> Failure:
    """The last failure, with the blame that the launches so far give it.

    Args:
        failures: (identity of the configuration, its failure) of the launches in a row that failed, oldest first.
        baseline_failed: the last of them is the baseline, which is known to be sound.
        baseline_passed: the baseline has run on this machine in this search.
        alike: this many *different* configurations failing in one phase with one signature are the environment's fault.

    `configuration` and `unknown` become `environment` by the rules above. Where the knowledge base marks a row as
    `either` (a killed process, say), its `environment` becomes `configuration` once the baseline has passed.
    """
    identity, last = failures[-1]
    if last.blame == "environment" and baseline_passed and not baseline_failed and _is_either(last):
        return replace(
            last, blame="configuration", remedy=f"The baseline runs here, this does not. {last.remedy}".strip()
        )
    if last.blame in ("environment", "transient"):
        return last
    if baseline_failed:
        return _environment(
            last, "The baseline itself fails: mend the machine or the installation before searching on."
        )
    key = signature(last)
    configurations = {identity}
    for other, failure in reversed(failures[:-1]):
        if failure.phase != last.phase or signature(failure) != key:
            break
        configurations.add(other)
    if len(configurations) >= alike:
        return _environment(
            last,
            f"{len(configurations)} different configurations fail alike in {last.phase}: look for what they share.",
        )
    return last


def _is_either(failure: Failure) -> bool:
    hit = find(failure.evidence, failure.phase) or find(failure.cause, failure.phase)
    return hit is not None and hit[0].either


def _environment(failure: Failure, why: str) -> Failure:
    return replace(failure, blame="environment", remedy=f"{why} {failure.remedy}".strip())
