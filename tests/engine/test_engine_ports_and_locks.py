"""Ports and locks: free ones, and who holds the others."""

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.locks import LOCKS_VARIABLE, GpuLocks, HeldElsewhere
from engine.ports import free_port, holder_among, in_use, listener, listening_sockets

HOLDER = """
import time
from engine.locks import GpuLocks
with GpuLocks({gpus}):
    print("held", flush=True)
    time.sleep({seconds})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


def hold(gpus: str, seconds: float) -> subprocess.Popen[bytes]:
    code = HOLDER.format(gpus=gpus, seconds=seconds)
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder


def test_a_free_port_is_one_that_no_outgoing_connection_gets() -> None:
    port = free_port()
    assert in_use(port) is None
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        assert 20000 <= port < int(file.read().split()[0])


def test_a_port_in_use_is_told_with_its_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listener(port) == os.getpid()
        assert f"pid {os.getpid()} of " in str(in_use(port))
        assert holder_among(listening_sockets(port), [1, 2]) in (None, 1, 2)
    assert in_use(port) is None


def test_a_lock_is_for_one_process_and_names_its_holder() -> None:
    holder = hold("(0, 1)", 30)
    try:
        with pytest.raises(HeldElsewhere, match=rf"GPU 1 is in use by pid {holder.pid} of \w+: .*; wait for it"):
            GpuLocks((1, 2)).acquire()
        with GpuLocks((2, 3)), GpuLocks():
            pass
    finally:
        holder.kill()
        holder.communicate()
    with GpuLocks((0, 1, 2)):
        pass


def test_a_lock_can_be_waited_for() -> None:
    holder = hold("()", 0.3)
    began = time.monotonic()
    with GpuLocks(wait_s=10):
        assert time.monotonic() - began < 10
    holder.communicate()


def test_of_several_locks_all_or_none_are_taken() -> None:
    with GpuLocks((1,)):
        with pytest.raises(HeldElsewhere):
            GpuLocks((0, 1)).acquire()
        with GpuLocks((0,)):
            pass


def test_every_user_of_the_host_may_use_the_locks(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with GpuLocks((0,)):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o666 for file in folder.iterdir())


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "file" / "locks"))
    with pytest.raises(HeldElsewhere, match="cannot be used"):
        GpuLocks().acquire()
