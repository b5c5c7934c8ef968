"""What the launch tests share: the tests' own engine, and counting who is left."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.configuration import Configuration, FlagValue
from engine.failure import EngineFailed
from engine.launch import Engine
from engine.ports import free_port
from engine.process_tree import environment_of, process_table, read_process
from engine.program import Program

FAKE = Path(__file__).with_name("fake_engine.py")
MARK = "QUIETLANE_TEST_MARK"


def fake_program(mark: str = "") -> Program:
    """The tests' own engine, with a mark by which its processes are found again."""
    return Program((sys.executable, str(FAKE)), {MARK: mark} if mark else {}, rehearsal=True)


def fake_engine(folder: Path, flags: dict[str, FlagValue] | None = None, **options: Any) -> Engine:
    """An engine that logs into the folder; not started."""
    options = {"log_path": folder / "engine.log", "port": free_port(), **options}
    program = options.pop("program", None) or fake_program(str(folder))
    return Engine(program, Configuration(flags or {}), **options)


def ready(engine: Engine) -> Engine:
    """The same engine, started and ready."""
    engine.start()
    for _ in engine.starting():
        pass
    return engine


def failure_of(engine: Engine, limit_s: float = 5.0) -> EngineFailed | None:
    """Check the engine until it fails."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            engine.check()
        except EngineFailed as failed:
            return failed
        time.sleep(0.02)
    return None


def marked(folder: Path) -> list[int]:
    """The processes of engines that were made by ``fake_engine`` for this folder."""
    return [pid for pid in process_table() if environment_of(pid).get(MARK) == str(folder)]


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether it comes true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def gone(pid: int) -> bool:
    """Whether the process has ended."""
    process = read_process(pid)
    return process is None or process.state == "Z"


def kill(pid: int | None, number: int = 9) -> None:
    """Signal a process that must be there."""
    assert pid is not None
    os.kill(pid, number)
