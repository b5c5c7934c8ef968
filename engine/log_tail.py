"""Following an engine's log file: what was appended since, also after somebody deleted the file."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

PIECE = 1 << 20


class LogTail:
    """Owns the reading end of one launch's log, made empty at the beginning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        # The open file, not its name, is followed: a deleted log is read on, and a rotated one is not lost.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self.bytes_read = 0

    def read(self) -> bytes:
        """The next piece (at most a megabyte), empty when all is read. A truncated log is read from its beginning."""
        position = self.bytes_read
        with contextlib.suppress(OSError):
            size = os.fstat(self._file).st_size
            if size < position:
                position = 0
            piece = os.pread(self._file, PIECE, position)
            self.bytes_read = position + len(piece)
            return piece
        return b""

    def restore(self) -> None:
        """If somebody deleted the file, write it again from what is still open."""
        if self._file < 0 or self.path.exists():
            return
        with contextlib.suppress(OSError), open(self.path, "wb") as copy, open(self._file, "rb", closefd=False) as kept:
            kept.seek(0)
            shutil.copyfileobj(kept, copy)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
