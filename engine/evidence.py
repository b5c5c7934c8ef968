"""What can be known about an engine that hangs, taken before it is ended: texts by name, to be stored with the launch.

Taking evidence never fails and never hangs: a source that is missing, forbidden or slow says so in its text.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from engine.log_prefix import Unwrapper
from engine.process_tree import Process

TOOL_TIMEOUT_S = 10.0
LONGEST_TEXT = 200_000  # characters of each text
TAIL_BYTES = 512 * 1024
LINES_A_RANK = 30
LINES_WITHOUT_STAMP = 60
# Xid: the driver's GPU errors; AER: PCIe's; the rest is the memory killer and what it leaves.
KERNEL_LINES = re.compile(
    r"Xid|NVRM|AER|PCIe Bus Error|[Oo]ut of memory|oom[-_]kill|Killed process|hung_task|blocked for more"
)


def run_tool(command: Sequence[str], timeout_s: float = TOOL_TIMEOUT_S) -> str | None:
    """Output of a program, ``None`` if it is not installed. What went wrong is in the text."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return f"({command[0]} did not answer within {timeout_s:.0f} s)"
    except OSError as error:
        return f"({command[0]}: {error})"
    return (done.stdout + done.stderr).strip() or f"({command[0]} ended with {done.returncode} and no output)"


def _read(path: str) -> str:
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError as error:
        return f"({error.strerror})"


def _title(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()[:200] or _read(f"/proc/{pid}/comm")


def _kernel_view(pid: int) -> str:
    """Where each thread waits in the kernel; all that there is where py-spy is not."""
    rows = [f"state: {_read(f'/proc/{pid}/status').split('State:')[-1].splitlines()[0].strip()}"]
    try:
        threads = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return "(ended)"
    for thread in threads[:64]:
        folder = f"/proc/{pid}/task/{thread}"
        rows.append(f"thread {thread} {_read(folder + '/comm')}: waits in {_read(folder + '/wchan') or '-'}")
        rows.append(f"  system call: {_read(folder + '/syscall')}")
        stack = _read(folder + "/stack")
        rows += [f"  {line}" for line in stack.splitlines()[:12]]
    return "\n".join(rows)


def _stack(pid: int) -> str:
    head = f"pid {pid}: {_title(pid)}\n"
    spied = run_tool(["py-spy", "dump", "--pid", str(pid)])
    if spied is not None and "Thread" in spied:
        return head + spied
    return head + (f"{spied}\n" if spied else "") + _kernel_view(pid)


def stacks(processes: Sequence[Process]) -> str:
    """Python stacks of every process where py-spy is installed and allowed, else what the kernel shows."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        return "\n\n".join(pool.map(_stack, [process.pid for process in processes]))


def gpu_state(_: Sequence[Process]) -> str:
    """The table of ``nvidia-smi``, and each GPU's state in full."""
    table = run_tool(["nvidia-smi"])
    if table is None:
        return "(nvidia-smi is not installed)"
    detail = run_tool(["nvidia-smi", "-q", "-d", "MEMORY,UTILIZATION,ECC,CLOCK,PERFORMANCE,PAGE_RETIREMENT"])
    return f"{table}\n\n{detail or ''}"


def kernel_log(_: Sequence[Process]) -> str:
    """The kernel's lines on GPU errors (Xid), PCIe errors (AER) and killed processes."""
    text = run_tool(["dmesg", "--ctime"]) or run_tool(["journalctl", "-k", "-b", "-n", "5000", "--no-pager"])
    if text is None:
        return "(neither dmesg nor journalctl is installed)"
    found = [line for line in text.splitlines() if KERNEL_LINES.search(line)]
    if found:
        return "\n".join(found[-200:])
    return text[:300] if len(text) < 300 else "(no line on Xid, AER, NVRM or out of memory)"


def sockets(processes: Sequence[Process]) -> str:
    """Listening and connected sockets of every process."""
    rows = []
    for process in processes:
        try:
            connections = psutil.Process(process.pid).net_connections(kind="inet")
        except (psutil.Error, OSError) as error:
            rows.append(f"pid {process.pid}: ({type(error).__name__})")
            continue
        for one in connections:
            here = f"{one.laddr.ip}:{one.laddr.port}" if one.laddr else "-"
            there = f"{one.raddr.ip}:{one.raddr.port}" if one.raddr else "-"
            rows.append(f"pid {process.pid}: {here} -> {there} {one.status}")
    return "\n".join(rows) or "(none)"


def process_list(processes: Sequence[Process]) -> str:
    """Each process: state, parent, CPU ticks, memory, name."""
    rows = ["pid parent state cpu_ticks memory command"]
    for process in processes:
        memory = re.search(r"VmRSS:\s*(.+)", _read(f"/proc/{process.pid}/status"))
        rows.append(
            f"{process.pid} {process.parent} {process.state} {process.cpu_ticks} "
            f"{memory[1] if memory else '-'} {_title(process.pid)}"
        )
    return "\n".join(rows)


def last_lines(log_path: Path) -> str:
    """The last lines of every rank, and the last without a rank."""
    try:
        with open(log_path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"({log_path}: {error.strerror})"
    unwrapper = Unwrapper()
    by_rank: dict[str, list[str]] = {}
    for line in re.split(r"[\r\n]+", text):
        for message in unwrapper.messages(line) if line else ():
            by_rank.setdefault(message.rank or "", []).append(message.text)
    pieces = [f"{rank}:\n" + "\n".join(lines[-LINES_A_RANK:]) for rank, lines in sorted(by_rank.items()) if rank]
    pieces.append("no rank:\n" + "\n".join(by_rank.get("", [])[-LINES_WITHOUT_STAMP:]))
    return "\n\n".join(pieces)


def collect(processes: Sequence[Process], log_path: Path) -> dict[str, str]:
    """Everything, at most some tens of seconds; names to texts."""
    sources = {
        "stacks": lambda: stacks(processes),
        "processes": lambda: process_list(processes),
        "gpus": lambda: gpu_state(processes),
        "kernel log": lambda: kernel_log(processes),
        "sockets": lambda: sockets(processes),
        "last lines": lambda: last_lines(log_path),
    }
    taken = {"taken at": time.strftime("%Y-%m-%d %H:%M:%S %z")}
    for name, source in sources.items():
        try:
            taken[name] = source()[:LONGEST_TEXT]
        except Exception as error:
            taken[name] = f"({type(error).__name__}: {error})"
    return taken
