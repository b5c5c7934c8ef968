"""What quietlane writes on an Optuna trial, and reads from it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from optuna.trial import FrozenTrial, TrialState

# One attribute holds everything for us; the others are for people who browse the study.
_KEY = "quietlane"
REHEARSED = "REHEARSAL: invented figures"


@dataclass(frozen=True)
class TrialFacts:
    """One trial beyond its parameters.

    Attributes:
        label: what it changes against the baseline.
        identity: of the configuration after the engine's own rewrites; equal trials are one.
        throughput: output tokens a second by level; ``acceptance``: acceptance length by level.
        failure: rank, phase and cause in one line; ``blame`` and ``remedy`` as in ``engine.failure``.
        reused_from: number of the trial whose result this one shares.
    """

    label: str
    identity: str
    environment_id: int
    is_baseline: bool = False
    rehearsal: bool = False
    launch_id: int | None = None
    throughput: Mapping[str, float] = field(default_factory=dict)
    acceptance: Mapping[str, float] = field(default_factory=dict)
    pcie_bytes_per_token: Mapping[str, float] = field(default_factory=dict)
    failure: str | None = None
    blame: str | None = None
    remedy: str | None = None
    reused_from: int | None = None
    stopped_early: bool = False

    def attributes(self) -> dict[str, Any]:
        """User attributes for the trial, ours and the readable ones."""
        shown: dict[str, Any] = {
            _KEY: {name: _plain(value) for name, value in asdict(self).items()},
            "what": self.label,
        }
        if self.rehearsal:
            shown["engine"] = REHEARSED
        for level, value in self.throughput.items():
            shown[f"tok/s {level}"] = round(value, 2)
        for level, value in self.acceptance.items():
            shown[f"acceptance length {level}"] = round(value, 3)
        for level, value in self.pcie_bytes_per_token.items():
            shown[f"PCIe bytes/token {level}"] = round(value)
        if self.failure:
            shown["failure"] = f"{self.failure} ({self.blame})" + (f"; {self.remedy}" if self.remedy else "")
        if self.reused_from is not None:
            shown["same as trial"] = self.reused_from
        return shown

    @classmethod
    def of(cls, trial: FrozenTrial) -> TrialFacts | None:
        """The facts of a trial, ``None`` where quietlane wrote none (another tool's trial, or one cut short)."""
        values = trial.user_attrs.get(_KEY)
        try:
            return cls(**values) if isinstance(values, dict) else None
        except TypeError:
            return None


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def feasible(trial: FrozenTrial) -> bool:
    """Whether a trial was completed with every constraint kept."""
    return trial.state == TrialState.COMPLETE and all(value <= 0 for value in trial.constraints.values())
