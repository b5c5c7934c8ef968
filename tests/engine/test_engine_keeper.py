"""Whatever is killed, and in whatever order, nothing of an engine is left."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from launching import failure_of, fake_engine, gone, kill, marked, ready, within

from engine.failure import EngineFailed
from engine.locks import LOCKS_VARIABLE, GpuLocks
from engine.ports import can_bind
from engine.reap import orphans, reap_leftovers

FLOW = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from launching import fake_engine, ready
flags = {{"--own-session": True, "--ignore-term": True, "--grandchild": True}}
with ready(fake_engine(Path({folder!r}), flags, gpus=(0, 1))) as engine:
    who = {{"guard": engine.guard_pid, "keeper": engine.keeper_pid, "engine": engine.pid, "port": engine.port}}
    print(json.dumps(who), flush=True)
    while True:
        time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _locks_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A process of its own that owns an engine on GPUs 0 and 1, and the pids of everybody."""
    code = FLOW.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    try:
        yield {**json.loads(process.stdout.readline()), "process": process, "flow": process.pid}
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        assert within(5, lambda: marked(tmp_path) == [])


def nothing_left(flow: dict[str, Any], folder: Path) -> bool:
    """No process, no port, no lock."""
    flow["process"].poll()
    if marked(folder) or not gone(flow["keeper"]) or not gone(flow["guard"]) or not can_bind(flow["port"]):
        return False
    with GpuLocks((0, 1), wait_s=1.0):
        return True


@pytest.mark.parametrize(
    "victims",
    [
        ("flow",),
        ("keeper",),
        ("engine",),
        ("keeper", "flow"),
        ("flow", "keeper"),
        ("guard", "flow"),
        ("flow", "engine"),
        ("keeper", "guard"),
    ],
    ids=" then ".join,
)
def test_nothing_is_left_after_killing_the(flow: dict[str, Any], tmp_path: Path, victims: tuple[str, ...]) -> None:
    for victim in victims:
        kill(flow[victim])
    # The flow of this test only sleeps: where keeper and guard both die, it is its end that counts.
    if victims == ("keeper", "guard"):
        kill(flow["flow"])
        assert within(5, lambda: gone(flow["keeper"]) and gone(flow["guard"]) and flow["process"].poll() is not None)
        reap_leftovers()
    else:
        assert within(5, lambda: marked(tmp_path) == [])
        kill(flow["flow"]) if flow["process"].poll() is None else None
    assert within(5, lambda: nothing_left(flow, tmp_path))


def test_a_keeper_whose_guard_was_killed_gets_another_that_ends_the_tree(flow: dict[str, Any], tmp_path: Path) -> None:
    kill(flow["guard"])
    children = Path(f"/proc/{flow['keeper']}/task/{flow['keeper']}/children")
    assert within(3, lambda: len(children.read_text().split()) > 1)
    kill(flow["keeper"])
    assert within(5, lambda: marked(tmp_path) == [])


def test_a_stopped_keeper_ends_the_tree_when_its_owner_is_killed(flow: dict[str, Any], tmp_path: Path) -> None:
    kill(flow["keeper"], signal.SIGSTOP)
    kill(flow["flow"])
    assert within(5, lambda: nothing_left(flow, tmp_path))


def test_stopped_keepers_of_a_killed_owner_are_woken_by_the_next_start(flow: dict[str, Any], tmp_path: Path) -> None:
    kill(flow["guard"], signal.SIGSTOP)
    kill(flow["keeper"], signal.SIGSTOP)
    kill(flow["flow"])
    flow["process"].wait()
    assert marked(tmp_path)
    reap_leftovers()
    assert within(5, lambda: nothing_left(flow, tmp_path))


def test_keepers_that_somebody_stopped_are_woken_for_the_end(tmp_path: Path) -> None:
    running = ready(fake_engine(tmp_path))
    kill(running.keeper_pid, signal.SIGSTOP)
    kill(running.guard_pid, signal.SIGSTOP)
    began = time.monotonic()
    assert running.stop().tree_gone
    assert time.monotonic() - began < 5
    assert marked(tmp_path) == []


def test_a_terminated_keeper_ends_the_engine_politely_and_a_hangup_is_ignored(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path)) as running:
        for number in (signal.SIGHUP, signal.SIGINT):
            kill(running.keeper_pid, number)
            kill(running.guard_pid, number)
        time.sleep(0.1)
        running.check()
        kill(running.keeper_pid, signal.SIGTERM)
        assert within(5, lambda: marked(tmp_path) == [])
        with pytest.raises(EngineFailed):
            running.check()


def test_a_killed_keeper_is_told_as_a_passing_failure(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path)) as running:
        kill(running.keeper_pid)
        assert within(5, lambda: marked(tmp_path) == [])
        failed = failure_of(running)
        assert failed is not None
        assert "keeper process" in failed.failure.cause
        assert failed.failure.blame == "transient"


def test_when_keeper_and_guard_are_killed_the_owner_ends_the_tree_itself(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path, {"--own-session": True, "--ignore-term": True})) as running:
        kill(running.guard_pid, signal.SIGSTOP)
        kill(running.keeper_pid)
        kill(running.guard_pid)
        assert failure_of(running) is not None
        assert marked(tmp_path) == []


def test_what_the_death_of_all_at_once_leaves_is_reaped_by_identity_at_the_next_start(
    flow: dict[str, Any], tmp_path: Path
) -> None:
    for victim in ("guard", "keeper", "flow"):
        kill(flow[victim], signal.SIGSTOP)
    for victim in ("guard", "keeper", "flow"):
        kill(flow[victim])
    flow["process"].wait()
    assert within(2, lambda: gone(flow["guard"]) and gone(flow["keeper"]))
    assert marked(tmp_path)
    reaped = [leftover for leftover in reap_leftovers() if "fake_engine" in leftover.description]
    assert len(reaped) >= 2
    assert all(leftover.ended for leftover in reaped)
    assert nothing_left(flow, tmp_path)


def test_the_engine_of_a_living_keeper_is_nobodys_leftover(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path)) as running:
        assert not {process.pid for found in orphans().values() for process in found} & set(running.process_ids())


def test_a_process_of_the_owner_that_was_forked_and_holds_its_pipes_does_not_keep_the_engine(
    flow: dict[str, Any], tmp_path: Path
) -> None:
    holder = f"/proc/{flow['flow']}/fd"
    assert os.path.isdir(holder)
    code = "import os, sys, time\nfor fd in sys.argv[1:]:\n    pass\ntime.sleep(30)"
    # Another process opens the very same pipe end, as a fork of the flow would have it.
    pipes = [os.path.join(holder, name) for name in os.listdir(holder) if "pipe" in os.readlink(f"{holder}/{name}")]
    opened = []
    for path in pipes:
        try:
            opened.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            continue
    assert opened
    extra = subprocess.Popen([sys.executable, "-c", code], pass_fds=opened)
    try:
        kill(flow["flow"])
        assert within(5, lambda: marked(tmp_path) == [])
    finally:
        extra.kill()
        extra.wait()
        for descriptor in opened:
            os.close(descriptor)
