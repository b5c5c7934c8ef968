"""Where a start can be seen: a growing log file, a process tree, an HTTP address."""

from __future__ import annotations

import json
import os
import stat
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import psutil

_PIECE = 1 << 20
_QUIET_S = 10.0  # a log that nobody is seen to write to, and that was not written for this long, has ended
_HEALTH_TIMEOUT_S = 25.0  # /health generates a token and may take twenty seconds to give up


class WatchError(Exception):
    """There is nothing to watch at the target; one sentence that names it and says what to do."""


class Watched:
    """A process whose end is the end of its log (not another that is given its number later)."""

    def __init__(self, pid: int) -> None:
        try:
            self._process = psutil.Process(pid)
        except psutil.NoSuchProcess:
            raise WatchError(f"There is no process {pid}: name one that runs, a log, or a URL.") from None

    def alive(self) -> bool:
        """The process runs."""
        try:
            return self._process.is_running() and self._process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


class LogFile:
    """A log that grows, is rotated or truncated; it ends with ``writer``, else when nobody writes to it."""

    def __init__(self, path: Path, writer: Watched | None = None) -> None:
        self.path = path
        self._writer = writer
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115 - closed by __exit__ or with this object
        except OSError as error:
            raise WatchError(f"The log {path} cannot be read ({error.strerror}): name a file that is there.") from None
        self._looked_at = 0.0
        self._alive = True

    def __enter__(self) -> LogFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def read(self) -> bytes:
        """What has been written since, at most a mebibyte; empty for now when there is no more."""
        try:
            piece = self._file.read(_PIECE)
            if piece:
                return piece
            here, named = os.fstat(self._file.fileno()), self.path.stat()
            if (here.st_ino, here.st_dev) != (named.st_ino, named.st_dev):
                self._file.close()
                self._file = open(self.path, "rb")  # noqa: SIM115
                return self._file.read(_PIECE)
            if here.st_size < self._file.tell():
                self._file.seek(0)
                return self._file.read(_PIECE)
        except OSError:
            return b""  # between two files of a rotation, or deleted: what is open is read on
        return b""

    def alive(self) -> bool:
        """More may come. Looking for the writer costs a pass over /proc, hence at most every two seconds."""
        if self._writer is not None:
            return self._writer.alive()
        if time.monotonic() - self._looked_at > 2.0:
            self._looked_at = time.monotonic()
            self._alive = self._written_lately() or _has_writer(os.fstat(self._file.fileno()))
        return self._alive

    def _written_lately(self) -> bool:
        return time.time() - os.fstat(self._file.fileno()).st_mtime < _QUIET_S


def _has_writer(file: os.stat_result) -> bool:
    """A process that we may look into has the file open for writing."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            for descriptor in (entry / "fd").iterdir():
                seen = descriptor.stat()
                if (seen.st_ino, seen.st_dev) == (file.st_ino, file.st_dev) and _writes(entry, descriptor.name):
                    return True
        except OSError:
            continue
    return False


def _writes(process: Path, descriptor: str) -> bool:
    text = (process / "fdinfo" / descriptor).read_text(encoding="ascii", errors="replace")
    flags = next((line.split()[1] for line in text.splitlines() if line.startswith("flags:")), "0")
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def log_of_process(pid: int) -> Path | None:
    """The regular file that the standard error (else output) of a process goes to; ``None`` for a pipe or a terminal.

    Raises:
        WatchError: there is no such process, or it may not be looked into.
    """
    Watched(pid)
    for descriptor in ("2", "1"):
        link = Path(f"/proc/{pid}/fd/{descriptor}")
        try:
            if stat.S_ISREG(link.stat().st_mode):
                path = Path(os.readlink(link))
                return path if path.exists() else link
        except FileNotFoundError:
            continue
        except PermissionError:
            raise WatchError(f"Process {pid} belongs to another user: watch it as that user, or by its URL.") from None
    return None


def _tree(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        raise WatchError(f"There is no process {pid}: name one that runs, a log, or a URL.") from None


def tree_lines(pid: int) -> Iterator[str]:
    """A line a process of the tree: name, state, processor time, memory."""
    for process in _tree(pid):
        try:
            times, memory = process.cpu_times(), process.memory_info().rss / 1e9
            yield (
                f"{process.pid} {process.name()}, {process.status()}, "
                f"{times.user + times.system:.0f} s of processor, {memory:.1f} GB of host memory"
            )
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def tree_url(pid: int) -> str | None:
    """The address at which a process of the tree answers HTTP, ``None`` while none listens."""
    for process in _tree(pid):
        try:
            command = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        wanted = command[command.index("--port") + 1] if "--port" in command[:-1] else "30000"
        try:
            for connection in process.net_connections(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN and str(connection.laddr.port) == wanted:
                    return f"http://127.0.0.1:{wanted}"
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return None


@dataclass(frozen=True)
class Answer:
    """What an address says: ``sentence`` for people."""

    ready: bool
    version: str | None
    sentence: str


class Address:
    """An engine's HTTP address: refused while it loads, 503 while it warms up, 200 when it answers."""

    def __init__(self, url: str) -> None:
        if not urllib.parse.urlsplit(url).hostname:
            raise WatchError(f"{url} is no address: write it as http://host:port.")
        self._url = url.rstrip("/")

    def ask(self) -> Answer:
        """Asks once. An address that does not answer is that of an engine that still loads."""
        try:
            self._get("/health")
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return Answer(False, self._version(), f"{self._url} is up and warms up.")
            return Answer(False, None, f"{self._url} answers {error.code} to /health: it may be no SGLang.")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            return Answer(False, None, f"{self._url} does not answer yet ({reason}).")
        version = self._version()
        return Answer(True, version, f"{self._url} is ready{f', SGLang {version}' if version else ''}.")

    def _version(self) -> str | None:
        for path in ("/server_info", "/get_server_info"):
            try:
                version = json.loads(self._get(path)).get("version")
                return str(version) if version else None
            except (OSError, ValueError, AttributeError):
                continue
        return None

    def _get(self, path: str) -> bytes:
        with urllib.request.urlopen(self._url + path, timeout=_HEALTH_TIMEOUT_S) as answer:
            body: bytes = answer.read()
            return body
