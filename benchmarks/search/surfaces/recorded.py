"""A recorded grid as a surface: real launches, replayed from a CSV.

A row is one sample of one configuration. Columns named `parameter.NAME` hold the setting (an empty cell: the parameter
did not take part), `value` the figure searched (larger is better, empty for a crash), and `crash` why it crashed. Other
columns and lines that begin with # are left alone. The data card beside the CSV (same name, `.md`) says what was
measured, how and on what.

Only recorded configurations exist: an assignment outside the grid is answered by the nearest recorded one (fewest
settings that differ, then the first recorded), so that any strategy can be run; each measurement draws one of the
recorded samples of that configuration, so the noise is the recorded one.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.search.surfaces.space import Assignment, Parameter, SurfaceSpace
from benchmarks.search.surfaces.surface import Surface, modest

PREFIX = "parameter."
ABSENT = "(absent)"


class RecordingError(ValueError):
    """A recorded grid that cannot be replayed."""


@dataclass(frozen=True)
class Recording:
    """All samples of each recorded configuration; no samples means that it crashed, for the reason given."""

    parameters: tuple[str, ...]
    samples: Mapping[tuple[str, ...], tuple[float, ...]]
    crashes: Mapping[tuple[str, ...], str]

    def nearest(self, assignment: Assignment) -> tuple[str, ...]:
        wanted = tuple(str(assignment.get(name, ABSENT)) for name in self.parameters)
        if wanted in self.samples:
            return wanted
        return min(self.samples, key=lambda known: sum(a != b for a, b in zip(known, wanted, strict=True)))


class RecordedSurface(Surface):
    """A surface whose measurements are the recorded samples."""

    recording: Recording

    def measure(self, assignment: Assignment, rng: np.random.Generator) -> float:
        samples = self.recording.samples[self.recording.nearest(assignment)]
        return samples[int(rng.integers(len(samples)))]


def load(path: Path, seed: int) -> Surface:
    """Read a recorded grid; the seed draws which two or three middling configurations count as known to work.

    Raises RecordingError if the file holds no parameter column, no value or no card.
    """
    if not path.with_suffix(".md").exists():
        card = path.with_suffix(".md").name
        raise RecordingError(f"{path}: the data card {card} is missing; write down beside the CSV what was measured")
    recording = _read(path)
    space = SurfaceSpace(tuple(_parameter(recording, column) for column in range(len(recording.parameters))))

    def speed(assignment: Assignment) -> float:
        return mean(recording.samples[recording.nearest(assignment)])

    def crash(assignment: Assignment) -> str | None:
        return recording.crashes.get(recording.nearest(assignment))

    rng = np.random.default_rng([seed, 6])
    known = modest(space, lambda a: 0.0 if crash(a) else speed(a), rng, 2)
    surface = RecordedSurface(f"recorded {path.stem}", seed, space, speed, crash, known)
    object.__setattr__(surface, "recording", recording)
    return surface


def _read(path: Path) -> Recording:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    if not rows or "value" not in rows[0] or not any(name.startswith(PREFIX) for name in rows[0]):
        raise RecordingError(
            f"{path}: needs columns `{PREFIX}NAME` and `value`, with at least one row; see the head of recorded.py"
        )
    parameters = tuple(name.removeprefix(PREFIX) for name in rows[0] if name.startswith(PREFIX))
    samples: dict[tuple[str, ...], tuple[float, ...]] = {}
    crashes: dict[tuple[str, ...], str] = {}
    for row in rows:
        key = tuple(row[PREFIX + name] or ABSENT for name in parameters)
        samples.setdefault(key, ())
        if row["value"]:
            samples[key] += (float(row["value"]),)
        else:
            crashes[key] = row.get("crash") or "crashed"
    for key in [key for key, values in samples.items() if values and key in crashes]:
        del crashes[key]  # it ran at least once: the other time was a fault of the machine
    return Recording(parameters, samples, crashes)


def _parameter(recording: Recording, column: int) -> Parameter:
    seen = list(dict.fromkeys(key[column] for key in recording.samples))
    return Parameter(recording.parameters[column], choices=tuple(_typed(seen)))


def _typed(texts: list[str]) -> list[str | int]:
    """Whole numbers as numbers where all are, so that the sampler sees their order."""
    if all(text.lstrip("-").isdigit() for text in texts):
        return sorted(int(text) for text in texts)
    return list(texts)
