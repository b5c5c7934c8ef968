"""A configuration: the flags and the environment variables that one engine is started with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

FlagValue = str | int | float | bool | None


def _frozen(values: Mapping[str, FlagValue] | Mapping[str, str]) -> Mapping[str, FlagValue]:
    return MappingProxyType(dict(sorted(values.items())))


@dataclass(frozen=True)
class Configuration:
    """Flags (``--tp-size`` to 8; ``True`` is a bare flag, ``False`` and ``None`` leave it out) and environment.

    Immutable, ordered by name, and equal to any other configuration that gives the same command line.
    """

    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {name: value for name, value in self.flags.items() if value is not None and value is not False}
        object.__setattr__(self, "flags", _frozen(given))
        object.__setattr__(self, "environment", _frozen({k: str(v) for k, v in self.environment.items()}))

    def __hash__(self) -> int:
        return hash(self.identity())

    def arguments(self) -> list[str]:
        """The flags as command-line arguments, ordered by name."""
        arguments: list[str] = []
        for name, value in self.flags.items():
            arguments.append(name)
            if value is not True:
                arguments.append(str(value))
        return arguments

    def with_changes(
        self, flags: Mapping[str, FlagValue] | None = None, environment: Mapping[str, str | None] | None = None
    ) -> Configuration:
        """This configuration with other values on top; ``None`` takes a flag or a variable away."""
        merged = {**self.environment, **(environment or {})}
        return Configuration(
            {**self.flags, **(flags or {})}, {name: value for name, value in merged.items() if value is not None}
        )

    def differences(self, other: Configuration) -> dict[str, tuple[FlagValue, FlagValue]]:
        """Name of each flag or variable that differs, to (value here, value there); ``None`` where absent."""
        here: dict[str, FlagValue] = {**self.environment, **self.flags}
        there: dict[str, FlagValue] = {**other.environment, **other.flags}
        return {
            name: (here.get(name), there.get(name))
            for name in sorted({*here, *there})
            if here.get(name) != there.get(name)
        }

    def as_dict(self) -> dict[str, dict[str, FlagValue]]:
        """Plain dictionaries, as stored in the study."""
        return {"flags": dict(self.flags), "environment": dict(self.environment)}

    def identity(self) -> str:
        """Sixteen hexadecimal digits that equal configurations share."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]
