"""What a power cut or a kill of everything at once has left, found by identity and ended.

Every process of a launch carries the launch's name and its keepers' pids in its environment. Where no keeper lives any
more, the process is nobody's. Nothing is ever found by its command's name.
"""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from dataclasses import dataclass

from engine.ports import describe_process
from engine.process_tree import (
    KEEPERS_VARIABLE,
    LAUNCH_VARIABLE,
    Process,
    alive,
    ancestors,
    carriers,
    environment_of,
    kill_until_none,
    process_table,
    read_process,
    signal_exactly,
)


@dataclass(frozen=True)
class Leftover:
    """A process of a launch that nobody keeps any more. ``ended`` is false if it is stuck in the kernel."""

    launch: str
    pid: int
    description: str
    ended: bool


def kept(keepers: str) -> bool:
    """Whether one of ``PID@START PID@START`` lives. One that somebody stopped (SIGSTOP) is woken, to do its work."""
    living = []
    for keeper in keepers.split():
        pid, _, start = keeper.partition("@")
        if pid.isdigit() and start.isdigit() and alive(int(pid), int(start)):
            living.append(read_process(int(pid)))
    for process in living:
        if process is not None and process.state == "T":
            signal_exactly(process, signal.SIGCONT)
    return bool(living)


def orphans() -> dict[str, list[Process]]:
    """Launch to its processes, for every launch whose keepers are dead. We and our ancestors are never among them."""
    table = process_table()
    line = ancestors(os.getpid(), table)
    found: dict[str, list[Process]] = defaultdict(list)
    for process in table.values():
        if process.pid in line:
            continue
        environment = environment_of(process.pid)
        launch = environment.get(LAUNCH_VARIABLE)
        if launch and not kept(environment.get(KEEPERS_VARIABLE, "")):
            found[launch].append(process)
    return dict(found)


def reap_leftovers(limit_s: float = 30.0) -> list[Leftover]:
    """End every process of every launch that nobody keeps; what was found."""
    reaped = []
    for launch, processes in orphans().items():
        described = {process.pid: describe_process(process.pid) for process in processes}
        line = ancestors(os.getpid(), process_table())

        def remaining(table: dict[int, Process], launch: str = launch, spared: set[int] = line) -> list[Process]:
            return [process for process in carriers(launch, table) if process.pid not in spared]

        _, stuck = kill_until_none(remaining, limit_s=limit_s)
        still = {process.pid for process in stuck}
        reaped += [Leftover(launch, pid, words, pid not in still) for pid, words in described.items()]
    return reaped
