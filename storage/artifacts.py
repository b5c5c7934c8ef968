"""Files by reference: copied into the artifact folder beside the database, named by what they are, without secrets."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from optuna.artifacts import FileSystemArtifactStore, upload_artifact
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial
from sqlalchemy.engine import URL

from storage.errors import StorageError
from storage.redaction import Redactor

_TEXTS = frozenset(
    [".log", ".txt", ".json", ".jsonl", ".yaml", ".yml", ".sh", ".html", ".htm", ".csv", ".md", ".xml", ".toml", ".ini"]
)
_FOLDER_VARIABLE = "QUIETLANE_ARTIFACTS"


@dataclass(frozen=True)
class KeptFile:
    """A file in the artifact folder."""

    path: Path
    sha256: str
    size_bytes: int


def artifact_folder(url: URL) -> Path:
    """``$QUIETLANE_ARTIFACTS``; else ``study.artifacts/`` beside ``study.db``; else a folder in the user's data."""
    if given := os.environ.get(_FOLDER_VARIABLE):
        return Path(given).expanduser().absolute()
    if url.get_backend_name() == "sqlite":
        return Path(str(url.database)).with_suffix(".artifacts")
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    return data / "quietlane" / f"{url.host or 'local'}-{url.database}.artifacts"


def keep(source: Path, folder: Path, redactor: Redactor) -> KeptFile:
    """Copy a file into the folder, line by line without secrets when it is text. Raises StorageError.

    The name begins with the content's hash, so that the same content is kept once and never overwritten.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        with source.open("rb") as given, tempfile.NamedTemporaryFile(dir=folder, delete=False) as copy:
            try:
                chunks = given if source.suffix.lower() in _TEXTS else iter(lambda: given.read(1 << 20), b"")
                for chunk in chunks:
                    content = _redacted(chunk, redactor) if chunks is given else chunk
                    digest.update(content)
                    size += copy.write(content)
                copy.flush()
                os.fsync(copy.fileno())
                target = folder / f"{digest.hexdigest()[:16]}-{source.name}"
                Path(copy.name).replace(target)
                target.chmod(0o644)
            except BaseException:
                Path(copy.name).unlink(missing_ok=True)
                raise
    except OSError as refused:
        raise StorageError(
            f"The file {source} cannot be kept in {folder} ({refused.strerror}): "
            "see that it is there and that the disk has room."
        ) from refused
    return KeptFile(target, digest.hexdigest(), size)


def _redacted(line: bytes, redactor: Redactor) -> bytes:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        text = line.decode("latin-1")
        return redactor.text(text).encode("latin-1", "replace")
    return redactor.text(text).encode()


def show_in_dashboard(
    kept: KeptFile, folder: Path, shown_on: Study | Trial | FrozenTrial, storage: BaseStorage | None = None
) -> str:
    """Upload a kept file to Optuna's artifact store in the same folder, and return Optuna's id for it.

    Start the dashboard with ``--artifact-dir FOLDER``. Call it before the trial is told.
    """
    store = FileSystemArtifactStore(str(folder))
    return upload_artifact(artifact_store=store, file_path=str(kept.path), study_or_trial=shown_on, storage=storage)
