"""TCP ports of this host: finding a free one, and who listens on one."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterable

import psutil

# Linux hands out 32768 and above to outgoing connections. An engine binds its port only at the end of its load, many
# minutes after it was chosen, so the port is taken from below, where nobody gets it by accident.
LOWEST_PORT = 20000
LISTENING = "0A"  # state of a row in /proc/net/tcp


def _lowest_ephemeral_port() -> int:
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return 32768


def can_bind(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:``port`` now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections that are merely dying (TIME_WAIT) do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def free_port() -> int:
    """A port that nobody listens on and that no outgoing connection will be given."""
    ceiling = _lowest_ephemeral_port()
    candidates = range(LOWEST_PORT, ceiling) if ceiling > LOWEST_PORT + 1000 else range(LOWEST_PORT, 60000)
    for port in random.SystemRandom().sample(candidates, 200):
        if can_bind(port):
            return port
    with socket.socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        return int(any_port.getsockname()[1])


def listening_sockets(port: int) -> set[str]:
    """The kernel's numbers (inodes) of the sockets that listen on this port, IPv4 and IPv6."""
    wanted = f":{port:04X}"
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = file.readlines()[1:]
        except OSError:
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == LISTENING and fields[1].endswith(wanted):
                found.add(fields[9])
    return found


def holder_among(sockets: set[str], pids: Iterable[int]) -> int | None:
    """The first of these processes that has one of these sockets open, as far as we may look into them."""
    names = {f"socket:[{number}]" for number in sockets}
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            descriptors = os.listdir(folder)
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                if os.readlink(f"{folder}/{descriptor}") in names:
                    return pid
            except OSError:
                continue
    return None


def describe_process(pid: int) -> str:
    """``pid 4711 of alice: python -m something``, as much of it as may be known."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            command = " ".join(process.cmdline()) or process.name()
            return f"pid {pid} of {process.username()}: {command[:200]}"
    except (psutil.Error, OSError):
        return f"pid {pid}"


def listener(port: int) -> int | None:
    """The pid of the process that listens on the port; ``None`` if there is none, or none that we may look into."""
    sockets = listening_sockets(port)
    return holder_among(sockets, psutil.pids()) if sockets else None


def in_use(port: int) -> str | None:
    """Who holds the port, in words; ``None`` if a server could listen on it."""
    if can_bind(port):
        return None
    pid = listener(port)
    if pid is not None:
        return describe_process(pid)
    return "a process that cannot be seen from here" if listening_sockets(port) else "a connection of another process"
