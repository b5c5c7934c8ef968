"""How a start is shown: a table with a row a rank on a terminal, one plain line a phase everywhere else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from engine.failure import Failure
from engine.phase import Phase
from engine.progress import Progress

_CAUSE = 300  # characters of a line


def seconds_text(seconds: float | None) -> str:
    """``0.4 s``, ``58 s``, ``3 min 20 s``, ``1 h 5 min``; empty where unknown."""
    if seconds is None:
        return ""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def memory_text(phase: Phase) -> str:
    """Memory that a phase used and left, as far as the engine says."""
    parts = []
    if phase.memory_used_gb is not None:
        parts.append(f"used {phase.memory_used_gb:.2f} GB")
    if phase.memory_left_gb is not None:
        parts.append(f"left {phase.memory_left_gb:.2f} GB")
    return ", ".join(parts)


def eta_text(progress: Progress) -> str:
    """The time left by the history, with its spread."""
    if progress.ready:
        return "ready"
    if progress.eta_s is None:
        return "time left unknown: no earlier start of this model"
    text = f"about {seconds_text(progress.eta_s)} left"
    if progress.eta_spread_s is not None and progress.eta_spread_s[1] > progress.eta_spread_s[0]:
        text += f" ({seconds_text(progress.eta_spread_s[0])} to {seconds_text(progress.eta_spread_s[1])})"
    return text


def table(progress: Progress, now: float | None, version: str | None = None) -> Table:
    """The start at this moment, a row a rank. ``now`` in unix seconds."""
    title = f"SGLang {version}" if version else "SGLang"
    shown = Table(title=f"{title}, {seconds_text(progress.elapsed_s)} since its start", caption=eta_text(progress))
    for heading in ("rank", "phase", "", "time", "memory", ""):
        shown.add_column(heading)
    for rank, phase in progress.current.items():
        running = now - phase.started_at if now is not None and phase.started_at is not None else None
        bar: ProgressBar | Text = Text("done") if phase.done else Text("")
        if phase.progress is not None and not phase.done:
            bar = ProgressBar(total=1.0, completed=phase.progress, width=20)
        shown.add_row(
            Text(rank),
            Text(phase.name),
            bar,
            seconds_text(phase.elapsed_s if phase.done else running),
            memory_text(phase),
            Text("behind", style="bold") if rank == progress.behind else "",
        )
    return shown


def phase_line(phase: Phase) -> str:
    """One line on one phase, for a file or a plain terminal."""
    how = seconds_text(phase.elapsed_s) if phase.done else "not ended"
    parts = [f"{phase.rank}: {phase.name}", how, memory_text(phase)]
    return plain(", ".join(part for part in parts if part))


class PhaseLines:
    """Says each phase once, when it has ended."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def new(self, phases: Sequence[Phase]) -> Iterator[str]:
        """Lines on the phases that have ended since the last call."""
        for phase in phases:
            if phase.done and (phase.rank, phase.name) not in self._said:
                self._said.add((phase.rank, phase.name))
                yield phase_line(phase)

    def rest(self, phases: Sequence[Phase]) -> Iterator[str]:
        """Lines on what never ended."""
        for phase in phases:
            if not phase.done:
                yield phase_line(phase)


def failure_lines(failure: Failure) -> tuple[str, str, str]:
    """A failure in three lines: where and why, what the log says, what to do."""
    said = [line for line in failure.evidence.splitlines() if line.strip()]
    remedy = failure.remedy or "Nothing is known about it; the evidence is kept whole."
    return (
        plain(failure.sentence()),
        plain(f"evidence: {said[-1].strip() if said else 'none'}"),
        plain(f"{failure.blame}: {remedy}"),
    )


def plain(text: str) -> str:
    """The text on one line, without control characters, at most a few hundred characters."""
    clean = "".join(letter if letter.isprintable() else " " for letter in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= _CAUSE else clean[: _CAUSE - 1] + "…"
