"""Asks the installed SGLang whether it would start with a configuration, and as what, before any weight is read.

SGLang rejects or silently rewrites some sixty combinations of flags, and flags come, go and change their names between
releases and forks. Its own argument code is the authority, so it is asked, in its own interpreter, and nothing of it is
copied here. What only the hardware or the model refuses later (a missing kernel, too little memory) it cannot know.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from engine.configuration import Configuration
from engine.identity import resolved_identity
from engine.preflight_process import HelperLost, PreflightProcess
from engine.program import Program
from engine.renamed_flags import explain_renamed

SERVERS = ("sglang.launch_server",)


@dataclass(frozen=True)
class Answer:
    """What SGLang says of one configuration.

    Attributes:
        accepted: it would go on to load weights; also true where it could not be asked (``warnings`` says so).
        resolved: its resolved arguments by name; ``None`` where rejected or not asked.
        identity: shared by configurations that are one and the same to SGLang; that of the configuration as
            asked where there is nothing resolved.
        rejection: SGLang's own words, with the new name of a renamed flag; ``None`` where accepted.
        warnings: one sentence each, with what to do.
    """

    accepted: bool
    resolved: dict[str, Any] | None
    identity: str
    rejection: str | None
    warnings: tuple[str, ...] = ()


class Preflight:
    """The installed SGLang of one program, asked as often as wanted.

    ``start`` returns at once and the first ``check`` waits until SGLang is imported (some seconds); ``with`` starts it.
    Whatever goes wrong with asking never blocks a launch: the configuration then counts as accepted, with a warning.
    Safe to use from several threads; they are answered in turn.
    """

    def __init__(self, program: Program, *, start_timeout_s: float = 60, check_timeout_s: float = 30) -> None:
        self._program = program
        self._start_timeout_s = start_timeout_s
        self._check_timeout_s = check_timeout_s
        self._turn = threading.Lock()
        self._process: PreflightProcess | None = None
        self._deadline = 0.0
        self._ready: dict[str, Any] | None = None
        self._base_arguments: list[str] = []
        self._unavailable: str | None = "the preflight was not started"

    def __enter__(self) -> Preflight:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the helper in the engine's interpreter, without waiting for it."""
        if self._process is not None:
            return
        split = _split(self._program)
        if isinstance(split, str):
            self._unavailable = split
            return
        python, self._base_arguments = split
        self._process = PreflightProcess(python, self._program.environ(Configuration()))
        self._process.start()
        self._deadline = time.monotonic() + self._start_timeout_s
        self._unavailable = None

    def close(self) -> None:
        """End the helper; nothing of it is left."""
        if self._process is not None:
            self._process.close()
            self._process = None
        self._unavailable = "the preflight is closed"

    @property
    def available(self) -> bool:
        """False once it is known that SGLang cannot be asked; true while it starts."""
        return self._unavailable is None

    @property
    def unavailable_because(self) -> str | None:
        """Why SGLang cannot be asked, as a sentence."""
        return self._unavailable

    @property
    def version(self) -> str | None:
        """The installed version; waits for the start. ``None`` where unavailable."""
        with self._turn:
            ready = self._await_ready()
        return ready["version"] if ready else None

    def known_flags(self) -> set[str]:
        """Every flag of the installed version, aliases included; waits for the start. Empty where unavailable."""
        with self._turn:
            ready = self._await_ready()
        return set(ready["flags"]) if ready else set()

    def check(self, configuration: Configuration) -> Answer:
        """SGLang's decision on ``configuration``."""
        arguments = [*self._base_arguments, *configuration.arguments()]
        with self._turn:
            ready = self._await_ready()
            if ready is None or self._process is None:
                return _unasked(configuration, _not_checked(self._unavailable))
            try:
                answer = self._process.ask(arguments, configuration.environment, self._check_timeout_s)
            except HelperLost as lost:
                self._lose(lost)
                return _unasked(configuration, _not_checked(lost))
        warnings = tuple(
            _unknown_variable(name, like, ready["version"]) for name, like in answer["unknown_variables"].items()
        )
        if answer["decision"] == "undecided":
            undecided = f"Not decided by SGLang before the launch: {answer['words']}."
            return _unasked(configuration, undecided, *warnings)
        if answer["decision"] == "rejected":
            renamed = explain_renamed(arguments, ready["flags"])
            rejection = f"{answer['words']}; {renamed}" if renamed else answer["words"]
            return Answer(False, None, configuration.identity(), rejection, warnings)
        resolved = answer["resolved"]
        return Answer(True, resolved, resolved_identity(resolved, configuration, ready["version"]), None, warnings)

    def _await_ready(self) -> dict[str, Any] | None:
        if self._ready is None and self._unavailable is None and self._process is not None:
            try:
                self._ready = self._process.ready(self._deadline)
            except HelperLost as lost:
                self._lose(lost)
        return self._ready if self._unavailable is None else None

    def _lose(self, lost: HelperLost) -> None:
        self._unavailable = str(lost)
        if self._process is not None:
            self._process.close()
            self._process = None


def _split(program: Program) -> tuple[list[str], list[str]] | str:
    """(interpreter with its options, flags that every launch has), or why SGLang cannot be asked."""
    if program.rehearsal:
        return "the rehearsal engine checks its arguments itself when it starts"
    command = list(program.command)
    if "-m" not in command[1:-1]:
        return f"the command {' '.join(command)!r} does not start SGLang as `python -m {SERVERS[0]}`"
    place = command.index("-m", 1)
    module = command[place + 1]
    if module not in SERVERS:
        return f"the module {module} is not SGLang's server, `{SERVERS[0]}`"
    return command[:place], command[place + 2 :]


def _unasked(configuration: Configuration, *warnings: str) -> Answer:
    return Answer(True, None, configuration.identity(), None, warnings)


def _not_checked(reason: object) -> str:
    return f"Not checked by SGLang before the launch: {str(reason).rstrip('.')}."


def _unknown_variable(name: str, like: str, version: str) -> str:
    remedy = f"did you mean {like}?" if like else "it has no effect; take it out, or check the version."
    return f"SGLang {version} knows no variable {name}: {remedy}"
