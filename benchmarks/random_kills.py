"""Kill whatever belongs to a launch, at random, again and again, and count what is left: it must be nothing.

    python benchmarks/random_kills.py --rounds 200 --seed 1

Each round starts a process of its own that owns an engine (the *flow*), waits a random while, and kills a random
choice of flow, guard, keeper, engine parent and ranks with SIGKILL, in random order, perhaps after deleting the log or
filling the disk (a limit on the size of files: writes fail as they do on a full disk). Afterwards it counts processes
that carry the round's mark, the port, the locks, and the memory of the GPUs. Where flow, guard and keeper were all
killed, nobody was left to clean up, and the next start's ``reap_leftovers`` is called, as it would be.

The engine is the tests' own (forked ranks, one in a session of its own, SIGTERM ignored); ``--gpus 0,1 -- PYTHON -m
sglang.launch_server ...`` takes a real one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))

from engine.configuration import Configuration  # noqa: E402
from engine.failure import EngineFailed  # noqa: E402
from engine.gpus import memory_used_gb  # noqa: E402
from engine.launch import Engine  # noqa: E402
from engine.locks import LOCKS_VARIABLE, GpuLocks, HeldElsewhere  # noqa: E402
from engine.ports import can_bind, free_port  # noqa: E402
from engine.process_tree import environment_of, process_table  # noqa: E402
from engine.program import Program  # noqa: E402
from engine.reap import reap_leftovers  # noqa: E402

MARK = "QUIETLANE_RANDOM_KILLS"
FAKE_ENGINE = ROOT / "tests" / "engine" / "fake_engine.py"
FAKE_COMMAND = [sys.executable, str(FAKE_ENGINE), "--ranks", "3", "--chatty"]
VICTIMS = ("flow", "guard", "keeper", "engine", "rank", "all ranks")
FULL_DISK_BYTES = 600
NEAR_GB = 0.5


class Flow:
    """A forked process of its own that owns an engine, and what it tells of it. (A fork, since imports take longer.)"""

    def __init__(self, mark: str, engine: Engine, locks: Path, disk_full: bool) -> None:
        self.heard = b""
        self.who: dict[str, Any] = {}
        self.pipe, telling = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.environ |= {MARK: mark, LOCKS_VARIABLE: str(locks)}
                if disk_full:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, FULL_DISK_BYTES))
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                own_until_killed(engine, telling)
            finally:
                os._exit(0)
        os.close(telling)

    def listen(self, until: str, limit_s: float) -> None:
        """Hear who is who, up to that state or for so long."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline and self.who.get("state") != until:
            if not select.select([self.pipe], [], [], 0.05)[0]:
                continue
            piece = os.read(self.pipe, 65536)
            if not piece:
                break
            *lines, self.heard = (self.heard + piece).split(b"\n")
            if lines:
                self.who = json.loads(lines[-1])

    def wait(self) -> None:
        """Until it has ended; it must have been killed."""
        os.waitpid(self.pid, 0)
        os.close(self.pipe)


def own_until_killed(engine: Engine, telling: int) -> None:
    """Start and check; one JSON line for each new state: who is who."""

    def tell(state: str) -> None:
        ranks = [pid for pid in engine.process_ids() if pid != engine.pid]
        who = {"state": state, "guard": engine.guard_pid, "keeper": engine.keeper_pid, "engine": engine.pid}
        os.write(telling, json.dumps({**who, "ranks": ranks}).encode() + b"\n")

    with contextlib.suppress(EngineFailed), engine:
        engine.start()
        tell("started")
        for _ in engine.starting():
            pass
        tell("ready")
        while True:
            engine.check()
            time.sleep(0.05)


def marked(mark: str) -> list[int]:
    """Every process that carries the mark in its environment."""
    return [pid for pid in process_table() if environment_of(pid).get(MARK) == mark]


@dataclass
class Round:
    """What was done and what was left."""

    deeds: list[str] = field(default_factory=list)
    processes: list[int] = field(default_factory=list)
    port_held: bool = False
    locks_held: bool = False
    memory_left_gb: float = 0.0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Nothing was left."""
        return not (self.processes or self.port_held or self.locks_held or self.memory_left_gb > NEAR_GB)


def kill(pid: int) -> None:
    """SIGKILL, if there is such a process."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def one_round(
    dice: random.Random, folder: Path, gpus: tuple[int, ...], command: list[str], ready_s: float, limit_s: float
) -> Round:
    """Start, kill, count."""
    outcome = Round()
    mark = f"{os.getpid()}-{dice.getrandbits(64):x}"
    log, port = folder / f"{mark}.log", free_port()
    memory_before = memory_used_gb(gpus)
    disk_full = dice.random() < 0.15
    manners = [flag for flag in ("--ignore-term", "--own-session", "--grandchild") if dice.random() < 0.5]
    # The engine inherits the mark from the flow that starts it.
    program = Program((*command, *(manners if command == FAKE_COMMAND else [])), {MARK: mark})
    flow = Flow(mark, Engine(program, Configuration(), log_path=log, port=port, gpus=gpus), folder / "locks", disk_full)
    when = dice.choice(("at once", "loading", "ready", "ready"))
    if when != "at once":
        flow.listen("started" if when == "loading" else "ready", ready_s)
    time.sleep(dice.uniform(0, 0.6 if when == "at once" else 0.2))
    outcome.deeds.append(f"{when}{', disk full' if disk_full else ''}:")
    if dice.random() < 0.2:
        log.unlink(missing_ok=True)
        outcome.deeds.append("log deleted")
    victims = dice.sample(VICTIMS, dice.choice((1, 1, 2, 2, 3)))
    for victim in victims:
        outcome.deeds.append(victim)
        ranks = flow.who.get("ranks", [])
        if victim == "flow":
            kill(flow.pid)
        elif victim in ("rank", "all ranks"):
            for pid in ranks if victim == "all ranks" else dice.sample(ranks, min(1, len(ranks))):
                kill(pid)
        elif flow.who:
            kill(flow.who[victim])
        time.sleep(dice.choice((0.0, 0.0, dice.uniform(0, 0.05))))
    began = time.monotonic()
    if "flow" not in victims:
        time.sleep(0.1)
        # SIGTERM by Python's default: no block is left in order, nothing is cleaned up.
        os.kill(flow.pid, dice.choice((signal.SIGKILL, signal.SIGTERM)))
    flow.wait()
    # The flow is always killed, in the end; with guard and keeper too, nobody is left.
    nobody_left = {"guard", "keeper"} <= set(victims)
    count(outcome, mark, port, gpus, memory_before, folder, nobody_left)
    while not outcome.clean and time.monotonic() < began + limit_s:
        time.sleep(0.02)
        count(outcome, mark, port, gpus, memory_before, folder, nobody_left)
    outcome.seconds = time.monotonic() - began
    for pid in outcome.processes:
        kill(pid)
    return outcome


def count(
    outcome: Round,
    mark: str,
    port: int,
    gpus: tuple[int, ...],
    memory_before: dict[int, float],
    folder: Path,
    nobody_left: bool,
) -> None:
    """Look at what is left now."""
    if nobody_left:
        reap_leftovers()
    outcome.processes = marked(mark)
    outcome.port_held = not can_bind(port)
    outcome.memory_left_gb = max(
        (used - memory_before.get(index, 0.0) for index, used in memory_used_gb(gpus).items()), default=0.0
    )
    before = os.environ.get(LOCKS_VARIABLE)
    os.environ[LOCKS_VARIABLE] = str(folder / "locks")
    try:
        with GpuLocks(gpus):
            outcome.locks_held = False
    except HeldElsewhere:
        outcome.locks_held = True
    finally:
        if before is None:
            del os.environ[LOCKS_VARIABLE]
        else:
            os.environ[LOCKS_VARIABLE] = before


def campaign(
    rounds: int,
    seed: int,
    gpus: tuple[int, ...] = (0, 1),
    command: list[str] | None = None,
    ready_s: float = 20.0,
    limit_s: float = 10.0,
    show: bool = False,
) -> list[Round]:
    """So many rounds; the same seed makes the same choices (the timing is the machine's)."""
    dice = random.Random(seed)
    done = []
    with tempfile.TemporaryDirectory(prefix="random-kills-") as folder:
        for number in range(rounds):
            done.append(one_round(dice, Path(folder), gpus, command or FAKE_COMMAND, ready_s, limit_s))
            if show or not done[-1].clean:
                left = "clean" if done[-1].clean else f"LEFT {done[-1]}"
                print(f"{number + 1:4d}  {done[-1].seconds:5.2f} s  {left}  {' '.join(done[-1].deeds)}", flush=True)
    return done


def summary(rounds: list[Round]) -> str:
    """The count, in lines."""
    deeds = Counter(deed for one in rounds for deed in one.deeds if not deed.endswith(":"))
    times = sorted(one.seconds for one in rounds)
    return "\n".join(
        (
            f"rounds                       {len(rounds)}",
            f"kills                        {', '.join(f'{name} {many}' for name, many in deeds.most_common())}",
            f"with a full disk             {sum('disk full' in one.deeds[0] for one in rounds)}",
            f"processes left               {sum(len(one.processes) for one in rounds)}",
            f"ports left                   {sum(one.port_held for one in rounds)}",
            f"locks left                   {sum(one.locks_held for one in rounds)}",
            f"GPU memory left (rounds)     {sum(one.memory_left_gb > NEAR_GB for one in rounds)}",
            f"until clean: median, most    {times[len(times) // 2]:.2f} s, {times[-1]:.2f} s",
        )
    )


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpus", default="0,1", help="NVML indices to lock and watch, as in 0,1")
    parser.add_argument("--ready-s", type=float, default=20.0, help="how long a round waits for the engine to be ready")
    parser.add_argument("--limit-s", type=float, default=10.0, help="by then everything must be gone")
    parser.add_argument("--quiet", action="store_true", help="print failing rounds and the summary only")
    parser.add_argument("command", nargs="*", help="the engine's command line after --, if not the tests' own")
    arguments = parser.parse_args()
    gpus = tuple(int(index) for index in arguments.gpus.split(",") if index)
    done = campaign(
        arguments.rounds,
        arguments.seed,
        gpus,
        arguments.command or None,
        arguments.ready_s,
        arguments.limit_s,
        not arguments.quiet,
    )
    print(summary(done))
    return 0 if all(one.clean for one in done) else 1


if __name__ == "__main__":
    sys.exit(main())
