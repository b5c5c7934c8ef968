"""One at a time: a lock for each GPU of the host, and one for its CPU where no GPU is used.

A lock is a file that is flocked. Who holds a ``GpuLocks`` (a search, for all its trials) hands the open files to the
keeper of each launch, so that a GPU stays locked until the last process on it is gone, whatever became of the search.
The files lie in one folder for all users of the host (``/tmp/quietlane-locks``, or ``QUIETLANE_LOCKS``): a folder of
each user's own would let two users share a GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from engine.gpus import gpu_uuids
from engine.process_tree import alive, read_process

LOCKS_VARIABLE = "QUIETLANE_LOCKS"
LOOK_AGAIN_S = 0.2


class HeldElsewhere(Exception):
    """Another search, or another command of ours, has the GPU."""


def locks_folder() -> Path:
    """Where the locks of this host are."""
    return Path(os.environ.get(LOCKS_VARIABLE) or "/tmp/quietlane-locks")


def _open(path: Path) -> int:
    """Open a lock's file for reading and writing, made if missing, whoever made it first."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        # Not O_CREAT at once: in a sticky folder the kernel refuses that for a file of another user.
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return os.open(path, flags)
    os.fchmod(descriptor, 0o666)  # the umask must not lock other users out
    return descriptor


def _holder(descriptor: int) -> str:
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        who = f"pid {told['pid']} of {told['user']}: {told['command']}"
        if not alive(told["pid"], told["start"]):
            who += " (ended; what it started is still being taken down)"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return who


class GpuLocks:
    """Holds the locks of some GPUs (NVML indices), or of the host's CPU if there are none, while the block runs.

    Raises:
        HeldElsewhere: somebody has one of them, still after ``wait_s`` seconds. Names pid, user and command.
    """

    def __init__(self, gpus: Sequence[int] = (), wait_s: float = 0.0) -> None:
        self.gpus = tuple(gpus)
        self.wait_s = wait_s
        self.descriptors: tuple[int, ...] = ()

    def names(self) -> dict[str, str]:
        """File name of each lock to what it locks, in words; in an order that every taker follows."""
        if not self.gpus:
            return {"cpu.lock": "the CPU of this host"}
        uuids = gpu_uuids(self.gpus)
        return dict(sorted((f"{uuid}.lock", f"GPU {index}") for index, uuid in uuids.items()))

    def acquire(self) -> None:
        """Take all of them or none."""
        if self.descriptors:
            return
        deadline = time.monotonic() + self.wait_s
        while True:
            try:
                self.descriptors = self._take()
            except HeldElsewhere:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(LOOK_AGAIN_S)
            else:
                return

    def _take(self) -> tuple[int, ...]:
        folder = locks_folder()
        taken: list[int] = []
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(OSError):
                    folder.chmod(0o1777)
            for name, what in self.names().items():
                taken.append(_open(folder / name))
                try:
                    fcntl.flock(taken[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise HeldElsewhere(
                        f"{what} is in use by {_holder(taken[-1])}; wait for it (--wait), end it, or choose other GPUs."
                    ) from None
                self._sign(taken[-1])
        except OSError as error:
            _close(taken)
            raise HeldElsewhere(
                f"The lock folder {folder} cannot be used ({error.strerror}); make it writable or name another in "
                f"{LOCKS_VARIABLE}."
            ) from error
        except HeldElsewhere:
            _close(taken)
            raise
        return tuple(taken)

    @staticmethod
    def _sign(descriptor: int) -> None:
        me = read_process(os.getpid())
        command = " ".join([os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]])[:300]
        told = {"pid": os.getpid(), "start": me.start if me else 0, "user": getpass.getuser(), "command": command}
        with contextlib.suppress(OSError):  # a full disk does not unlock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(told).encode(), 0)

    def release(self) -> None:
        """Close our files. A keeper that was given them goes on holding the locks."""
        descriptors, self.descriptors = self.descriptors, ()
        _close(descriptors)

    def __enter__(self) -> GpuLocks:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
