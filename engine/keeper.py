"""The keeper: a small process that owns one engine, and takes the whole tree with it when its owner ends.

    owner (a flow, a shell)  --pipe-->  guard  --fork-->  keeper  --fork, exec-->  engine and all its ranks

Ownership is a pipe: the kernel closes the owner's end whatever kills the owner, SIGKILL included, and that is how the
keeper learns of it. Guard and keeper are both *subreapers*, so that a rank whose parent has died becomes theirs and not
init's; the guard waits for the keeper in the same way, and does its work if somebody kills it. Both hold the locks of
the GPUs (open files given by the owner), which therefore last exactly as long as the tree. What the death of all three
at once leaves is found by ``engine.reap``.

Started as ``python -I -S keeper.py LAUNCH``: standard library only, so that it is there within some 60 ms and stays
small. First line on stdin: a JSON object (see ``Specification``); then ``{"stop": grace_s}`` or the end of the file.
On stdout, one JSON object a line: ``started`` (pid, keeper), ``refused`` (why), ``exited`` (status), ``gone`` (killed).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import NoReturn, TypedDict

if __name__ == "__main__":  # -I leaves the project off the path; last, so that the standard library goes first
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from engine.process_tree import (
    KEEPERS_VARIABLE,
    LAUNCH_VARIABLE,
    Process,
    alive,
    carriers,
    descendants,
    kill_until_none,
    process_table,
    read_process,
    reap_zombies,
    signal_exactly,
)

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# How often the keeper looks by itself whether its owner and its guard are there; their pipes tell it sooner.
LOOK_S = 0.5
# A keeper that has not ended the tree by then after its owner's end is itself stuck, and the guard takes over.
STUCK_KEEPER_S = 30.0
# Grace for the engine where we ourselves are ended politely, and for ranks whose parent has ended.
POLITE_GRACE_S = 5.0
ORPHANS_GRACE_S = 0.2


class Specification(TypedDict):
    """What the owner asks for. The environment comes this way, not in the command line, since others can read that."""

    argv: list[str]
    environment: dict[str, str]
    log: str
    folder: str
    locks: list[int]
    owner: list[int]  # pid and start


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _tell(event: str, **details: object) -> None:
    with contextlib.suppress(OSError):  # the owner is gone
        os.write(1, (json.dumps({"event": event, **details}) + "\n").encode())


def _read_line(descriptor: int) -> bytes:
    text = b""
    while not text.endswith(b"\n"):
        # A byte too many would be the owner's next command, so the length of the line is not guessed at.
        piece = os.read(descriptor, 1)
        if not piece:
            sys.exit(0)
        text += piece
    return text


def _shield_from_oom() -> str | None:
    """Make the kernel's memory killer pass by (needs privilege); returns the value that the engine gets back."""
    try:
        with open("/proc/self/oom_score_adj", "r+") as file:
            before = file.read().strip()
            file.seek(0)
            file.write("-500")
    except OSError:
        return None
    return before


def _start_engine(specification: Specification, oom_score: str | None) -> tuple[int | None, str]:
    """Fork and execute; the pid, or ``None`` and why not."""
    keeper = os.getpid()
    report, reporter = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            # However the keeper ends, the kernel kills the engine's parent in the same instant.
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != keeper:
                os._exit(127)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            if oom_score is not None:
                with open("/proc/self/oom_score_adj", "w") as file:
                    file.write(oom_score)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            log = os.open(specification["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(specification["folder"])
            os.execvpe(specification["argv"][0], specification["argv"], specification["environment"])
        except BaseException as error:
            os.write(reporter, str(error).encode())
            os._exit(127)
    os.close(reporter)
    reason = os.read(report, 4096).decode(errors="replace")
    os.close(report)
    if reason:
        os.waitpid(pid, 0)
        return None, reason
    return pid, ""


class Keeper:
    """Owns the engine from fork to the last process of its tree."""

    def __init__(self, launch: str, specification: Specification, guard: int) -> None:
        self.launch = launch
        self.specification = specification
        self.guard = guard
        self.alive_pipe = -1
        self.spared = {os.getpid()}
        self.engine: int | None = None
        self.exit_status: int | None = None
        self.commands = b""
        self.wakeup = -1
        self.terminated = False
        self.owner_gone = False

    def members(self, table: dict[int, Process]) -> list[Process]:
        """Everything that belongs to the launch, the keeper and its guards not."""
        below = [process for process in descendants(os.getpid(), table) if process.pid not in self.spared]
        if below:
            return below
        return [process for process in carriers(self.launch, table) if process.pid not in self.spared]

    def collect(self) -> None:
        """Reap what has ended, and tell the owner if it was the engine itself."""
        for pid, status in reap_zombies().items():
            if pid == self.engine:
                self.exit_status = status
                _tell("exited", status=status)

    def end(self, grace_s: float) -> None:
        """SIGTERM and a grace, then SIGKILL until nothing is left. A later command can only shorten the grace."""
        deadline = time.monotonic() + grace_s
        if grace_s > 0:
            for process in self.members(process_table()):
                signal_exactly(process, signal.SIGTERM)
        pause = 0.002
        while time.monotonic() < deadline and self.members(process_table()):
            asked = self.next_command(pause)
            self.collect()
            if self.exit_status is not None:  # the rest has nobody left to work for
                asked = min(ORPHANS_GRACE_S, ORPHANS_GRACE_S if asked is None else asked)
            if asked is not None:
                deadline = min(deadline, time.monotonic() + asked)
            pause = min(pause * 1.5, 0.05)
        killed, _ = kill_until_none(self.members, self.collect)
        _tell("gone", killed=killed)

    def next_command(self, timeout_s: float) -> float | None:
        """Wait for a reason to end the tree: seconds of grace, ``None`` while there is no reason."""
        ready, _, _ = select.select([self.wakeup, *([] if self.owner_gone else [0])], [], [], timeout_s)
        if self.wakeup in ready:
            os.read(self.wakeup, 4096)
        if 0 in ready:
            piece = os.read(0, 65536)
            self.commands += piece
            self.owner_gone = not piece
        *lines, self.commands = self.commands.split(b"\n")
        if lines:
            return float(json.loads(lines[-1])["stop"])
        if self.owner_gone or not alive(*self.specification["owner"]):
            return 0.0
        if self.terminated:
            self.terminated = False
            return POLITE_GRACE_S
        return None

    def keep_a_guard(self) -> None:
        """If somebody killed the guard, put another in its place."""
        if self.guard == os.getppid() or (self.guard in self.spared and read_process(self.guard) is not None):
            return
        watched, alive_pipe = os.pipe()
        keeper = os.getpid()
        self.guard = os.fork()
        if self.guard == 0:
            os.close(alive_pipe)
            signal.set_wakeup_fd(-1)
            guard(self.launch, keeper, watched)
        os.close(watched)
        os.close(self.alive_pipe)
        self.alive_pipe = alive_pipe
        self.spared.add(self.guard)

    def run(self, alive_pipe: int, oom_score: str | None) -> NoReturn:
        """Start, wait, end."""
        self.alive_pipe = alive_pipe
        self.wakeup, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self.on_terminate)
        # Wakes us when the guard dies; so does the death of a later guard, which is our child.
        _prctl(PR_SET_PDEATHSIG, signal.SIGCHLD)
        pid, reason = _start_engine(self.specification, oom_score)
        if pid is None:
            _tell("refused", reason=reason)
        else:
            self.engine = pid
            _tell("started", pid=pid, keeper=os.getpid())
            grace_s = None
            while grace_s is None and self.exit_status is None:
                self.keep_a_guard()
                grace_s = self.next_command(LOOK_S)
                self.collect()
            self.end(grace_s or 0.0)
        # Before the guard ends, by which the owner knows that all is free.
        for lock in self.specification["locks"]:
            os.close(lock)
        with contextlib.suppress(OSError):
            os.write(self.alive_pipe, b".")
        os._exit(0)

    def on_terminate(self, *_: object) -> None:
        """Somebody ends us politely (a shutdown of the machine): the engine is ended politely."""
        self.terminated = True


def guard(launch: str, keeper: int, watched: int) -> NoReturn:
    """Wait for the keeper's end; if it ended without saying that all is done, end everything in its place."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    events = select.poll()
    events.register(watched, select.POLLIN)
    events.register(0, 0)  # no data, only that the owner's end is closed
    fired = [descriptor for descriptor, _ in events.poll()]
    if watched not in fired:
        events.unregister(0)
        os.kill(keeper, signal.SIGCONT)  # in case that somebody stopped it
        fired = [descriptor for descriptor, _ in events.poll(STUCK_KEEPER_S * 1000)]
    stuck = not fired
    if not stuck and os.read(watched, 1):
        os._exit(0)  # the keeper has done its work
    if stuck:
        os.kill(keeper, signal.SIGKILL)

    def members(table: dict[int, Process]) -> list[Process]:
        left = descendants(os.getpid(), table) or carriers(launch, table)
        return [process for process in left if process.pid != os.getpid()]

    killed, _ = kill_until_none(members, reap_zombies)
    _tell("keeper killed")
    _tell("gone", killed=killed)
    os._exit(0)


def main() -> NoReturn:
    """Read the specification, become the guard, fork the keeper."""
    launch = sys.argv[1]
    specification: Specification = json.loads(_read_line(0))
    for lock in specification["locks"]:
        os.set_inheritable(lock, False)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    oom_score = _shield_from_oom()
    watched, alive_pipe = os.pipe()
    guard_pid = os.getpid()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    keeper = os.fork()
    if keeper != 0:
        os.close(alive_pipe)
        guard(launch, keeper, watched)
    os.close(watched)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    both = [read_process(pid) for pid in (guard_pid, os.getpid())]
    specification["environment"] |= {
        LAUNCH_VARIABLE: launch,
        KEEPERS_VARIABLE: " ".join(f"{process.pid}@{process.start}" for process in both if process),
        # Else the engine's setproctitle overwrites the environment that the kernel shows, our mark with it.
        "SPT_NOENV": "1",
    }
    Keeper(launch, specification, guard_pid).run(alive_pipe, oom_score)


if __name__ == "__main__":
    main()
