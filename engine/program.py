"""The program that an engine is: how its command line begins, and the environment that every launch of it gets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.configuration import Configuration


@dataclass(frozen=True)
class Program:
    """``command`` is the beginning of the command line (interpreter first), ``environment`` lies over our own."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    rehearsal: bool = False

    @property
    def interpreter(self) -> str:
        """The Python that runs the engine (the first word of the command)."""
        return self.command[0]

    def argv(self, configuration: Configuration, port: int) -> list[str]:
        """The whole command line of one launch; the engine listens on loopback only."""
        return [*self.command, "--host", "127.0.0.1", "--port", str(port), *configuration.arguments()]

    def environ(self, configuration: Configuration) -> dict[str, str]:
        """The whole environment of one launch: ours, then the program's, then the configuration's."""
        return {**os.environ, **self.environment, **configuration.environment}
