"""A launch as it comes up: a progress artifact in Prefect, and a line a phase on the terminal."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.context import FlowRunContext, TaskRunContext

from engine.phase import PHASES
from engine.progress import Progress
from flows.voice import say

# An update costs Prefect about 90 ms: none for starts that are over before anyone could look.
_FIRST_UPDATE_S = 3.0
_UPDATE_EVERY_S = 5.0


def share(progress: Progress) -> float:
    """How far a start has come, in percent: by the clock where its length is known, else by phases."""
    if progress.ready:
        return 100.0
    if progress.eta_s is not None and progress.elapsed_s > 0:
        return 100.0 * progress.elapsed_s / (progress.elapsed_s + max(progress.eta_s, 0.0))
    places = [PHASES.index(phase.name) for phase in progress.current.values() if phase.name in PHASES]
    return 100.0 * min(places, default=0) / len(PHASES)


def describe(progress: Progress) -> str:
    """Where a start stands, in a line."""
    phases = sorted({phase.name for phase in progress.current.values()}, key=PHASES.index)
    text = f"{progress.elapsed_s:.0f} s, {', '.join(phases) or 'starting'}"
    if progress.behind:
        text += f", {progress.behind} is behind"
    if progress.eta_s is not None and not progress.ready:
        text += f", about {progress.eta_s:.0f} s left"
    return text


class LaunchView:
    """Shows one start; says a phase once, when the slowest rank has come to it."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._artifact: UUID | None = None
        self._began = self._updated = time.monotonic()
        self._said: str | None = None

    def __enter__(self) -> LaunchView:
        return self

    def show(self, progress: Progress) -> None:
        """Take note of where the start stands."""
        now = time.monotonic()
        if now - self._began < _FIRST_UPDATE_S:
            return
        places = [phase for phase in progress.current.values() if phase.name in PHASES]
        slowest = min(places, key=lambda phase: PHASES.index(phase.name)).name if places else None
        if slowest and slowest != self._said:
            self._said = slowest
            say(f"  {describe(progress)}")
        if now - self._updated >= _UPDATE_EVERY_S:
            self._updated = now
            self._update(share(progress), describe(progress))

    def _update(self, percent: float, text: str) -> None:
        if TaskRunContext.get() is None and FlowRunContext.get() is None:
            return
        if self._artifact is None:
            self._artifact = create_progress_artifact(progress=percent, key="engine-start", description=text)  # type: ignore[assignment]
        else:
            update_progress_artifact(self._artifact, progress=percent, description=text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._artifact is not None and error is None:
            self._update(100.0, "ready")
