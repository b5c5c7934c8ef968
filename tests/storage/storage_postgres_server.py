"""A real PostgreSQL that the tests start and end themselves, in a folder of its own, as a user without rights."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PASSWORD = "pg-Secret.77"


def _binary(name: str) -> str | None:
    """From PATH, or where Debian keeps the servers."""
    found = shutil.which(name)
    if found:
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else None


# PostgreSQL refuses to run as root: become nobody.
_NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.getuid() == 0 else {}


@dataclass
class Postgres:
    """One server in a folder of its own, on a free port of the loopback."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    str(_binary("postgres")),
                    "-D",
                    str(self.folder / "data"),
                    "-p",
                    str(self.port),
                    "-k",
                    "",
                    "-F",
                    "-c",
                    "listen_addresses=127.0.0.1",
                    "-c",
                    "shared_buffers=32MB",
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **_NOBODY,
            )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._answers():
                return
            time.sleep(0.1)
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def _answers(self) -> bool:
        import psycopg  # noqa: PLC0415 - the tests of SQLite need none

        try:
            psycopg.connect(self.url("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self) -> None:
        """End at once, sessions and all."""
        if self.process is not None:
            self.process.send_signal(signal.SIGQUIT)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                for child in psutil.Process(self.process.pid).children(recursive=True):
                    child.kill()
                self.process.kill()
                self.process.wait()
            self.process = None

    def url(self, database: str, password: str = PASSWORD) -> str:
        """A URL as a user would write it."""
        return f"postgresql://quietlane:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, template: str = "template1") -> str:
        """The URL of a fresh database, empty or a copy of another."""
        import psycopg  # noqa: PLC0415 - the tests of SQLite need none

        name = f"t{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")  # type: ignore[arg-type]
        return self.url(name)


def missing() -> str | None:
    """Why no server can be started here, if so."""
    if not (_binary("postgres") and _binary("initdb")):
        return "PostgreSQL is not installed here (postgres, initdb)"
    if importlib.util.find_spec("psycopg") is None:
        return "the extra [postgres] is not installed here (psycopg)"
    return None


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A new server, ended and removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="quietlane-pg-"))
    try:
        (folder / "password").write_text(PASSWORD)
        folder.chmod(0o755)
        if os.getuid() == 0:
            for path in (folder, folder / "password"):
                os.chown(path, 65534, 65534)
        subprocess.run(
            [
                str(_binary("initdb")),
                "-D",
                str(folder / "data"),
                "-U",
                "quietlane",
                "-A",
                "scram-sha-256",
                f"--pwfile={folder / 'password'}",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            cwd=folder,
            **_NOBODY,
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        server = Postgres(folder, port)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
