"""Observers: what else is measured while a load runs, without the load knowing it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from benchmark.prompts import Prompt
from benchmark.results import Measurement, RequestSample


class Observer:
    """Watches one measured window (the warm-up is not in it). Override what is needed; each call must be quick.

    ``after_finish`` returns fields of ``Measurement`` (``pcie_bytes_per_token``, ``nvlink_bytes_per_token``), totals of
    the window (``pcie_bytes``, ``nvlink_bytes``, which are divided by the output tokens) or ``notes``.
    """

    def before_start(self) -> None:
        """The first measured request is about to start."""

    def answered(self, prompt: Prompt, text: str, sample: RequestSample) -> None:
        """A measured request has completed with this text."""

    def after_finish(self) -> Mapping[str, Any]:
        """The last measured request has ended."""
        return {}


class AnswerSample(Observer):
    """Keeps the first so many texts that a load got, for ``benchmark.judgement.judge_under_load``."""

    def __init__(self, most: int = 32) -> None:
        self.most = most
        self.texts: list[str] = []

    def before_start(self) -> None:
        """Forget the texts of an earlier level."""
        self.texts = []

    def answered(self, prompt: Prompt, text: str, sample: RequestSample) -> None:
        """Keep the text while there is room."""
        if len(self.texts) < self.most:
            self.texts.append(text)


def apply(measurement: Measurement, findings: Iterable[Mapping[str, Any]]) -> Measurement:
    """The measurement with what observers found."""
    tokens = sum(sample.output_tokens for sample in measurement.samples if sample.error is None)
    fields: dict[str, Any] = {}
    notes: list[str] = list(measurement.notes)
    for finding in findings:
        for name, value in finding.items():
            if name == "notes":
                notes.extend(value)
            elif name in {"pcie_bytes", "nvlink_bytes"}:
                fields[f"{name}_per_token"] = value / tokens if value is not None and tokens else None
            elif name in {"pcie_bytes_per_token", "nvlink_bytes_per_token"}:
                fields[name] = value
            else:
                notes.append(f"{name}: {value}")
    return dataclasses.replace(measurement, notes=tuple(notes), **fields)
