"""Which processes belong to a launch, and how every one of them is ended.

A process belongs to a launch when it descends from the launch's keeper, or when its environment carries the launch's
name, whoever its parent is by now. Never by what it is called. Standard library only, cheap to import: the keeper runs
this before anything else exists.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

LAUNCH_VARIABLE = "QUIETLANE_LAUNCH"
# "PID@START PID@START": who ends this process, so that a later start can tell an orphan from somebody's running engine.
KEEPERS_VARIABLE = "QUIETLANE_KEEPERS"


class Process(NamedTuple):
    """One row of the process table; ``start`` (clock ticks since boot) tells a process from a later one of its pid."""

    pid: int
    parent: int
    session: int
    start: int
    state: str
    cpu_ticks: int


def read_process(pid: int) -> Process | None:
    """The process of that number, ``None`` if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return None
    # Field 2 is the command's name, which may itself hold spaces and brackets: what follows the last bracket is sure.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(
        pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0].decode(), int(fields[11]) + int(fields[12])
    )


def process_table() -> dict[int, Process]:
    """Every process that can be seen, by number."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                table[process.pid] = process
    return table


def descendants(root: int, table: dict[int, Process]) -> list[Process]:
    """Everything below ``root`` in the table, zombies included, parents before children."""
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [process.pid for process in below]
    return found


def ancestors(pid: int, table: dict[int, Process]) -> set[int]:
    """``pid``, its parent, and so on upward."""
    line: set[int] = set()
    while pid in table and pid not in line:
        line.add(pid)
        pid = table[pid].parent
    return line


def environment_of(pid: int) -> dict[str, str]:
    """The environment that a process was started with, empty where it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return {}
    pairs = (os.fsdecode(entry).partition("=") for entry in entries)
    return {name: value for name, _, value in pairs if name}


def carriers(launch: str, table: dict[int, Process]) -> list[Process]:
    """The processes whose environment names this launch."""
    wanted = os.fsencode(f"{LAUNCH_VARIABLE}={launch}")
    found = []
    for process in table.values():
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.append(process)
        except OSError:
            continue
    return found


def alive(pid: int, start: int) -> bool:
    """Whether that very process still runs (a zombie does not)."""
    process = read_process(pid)
    return process is not None and process.start == start and process.state != "Z"


def signal_exactly(process: Process, number: int) -> bool:
    """Send a signal to that very process, never to a newer one that has its number. Whether it was sent."""
    try:
        handle = os.pidfd_open(process.pid)
    except (OSError, AttributeError):  # no such process, or a kernel before 5.3
        handle = None
    try:
        now = read_process(process.pid)
        if now is None or now.start != process.start or now.state == "Z":
            return False
        if handle is None:
            os.kill(process.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    else:
        return True
    finally:
        if handle is not None:
            os.close(handle)


def reap_zombies() -> dict[int, int]:
    """Collect every child of ours that has ended: pid to exit status (negative: the signal that ended it)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def kill_until_none(
    find: Callable[[dict[int, Process]], Iterable[Process]],
    between: Callable[[], object] = lambda: None,
    limit_s: float | None = None,
) -> tuple[int, list[Process]]:
    """SIGKILL what ``find`` names, again and again, until it names nothing (new forks included) or time is up.

    Returns how many were alive and had to be killed, and who is left (stuck in the kernel) when time is up.
    """
    deadline = None if limit_s is None else time.monotonic() + limit_s
    killed: set[tuple[int, int]] = set()
    pause = 0.002
    while True:
        between()
        left = list(find(process_table()))
        if not left or (deadline is not None and time.monotonic() >= deadline):
            return len(killed), left
        killed |= {(process.pid, process.start) for process in left if signal_exactly(process, signal.SIGKILL)}
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
