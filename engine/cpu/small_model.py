"""The small trained model of ``models/``: found, checked against its sum, and unpacked once."""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

NAME = "tinymtp"
MODELS_VARIABLE = "QUIETLANE_MODELS"
ARCHIVES = Path(__file__).resolve().parents[2] / "models"
STAMP = "unpacked-from"


class ModelUnavailable(Exception):
    """The small model is not there, or is not what it should be."""


def models_folder() -> Path:
    """Where models are unpacked: ``QUIETLANE_MODELS``, or a folder of the user's cache."""
    named = os.environ.get(MODELS_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "quietlane" / "models"


def unpack(folder: Path | None = None, archive: Path = ARCHIVES / f"{NAME}.tar.xz") -> Path:
    """Unpack the model into ``folder`` (default: :func:`models_folder`) unless it is there, and return its path.

    Whole or not at all: it is unpacked beside its place and moved there.

    Raises:
        ModelUnavailable: no archive, another sum than ``SHA256SUMS`` says, or a folder that cannot be written.
    """
    model = (folder or models_folder()) / NAME
    expected = _expected_sum(archive)
    if _is_unpacked(model, expected):
        return model
    _check(archive, expected)
    try:
        model.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=model.parent) as beside:
            with tarfile.open(archive) as content:
                content.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # from 3.11.4 on
                content.extractall(beside)
            fresh = Path(beside) / NAME
            (fresh / STAMP).write_text(expected + "\n")
            if model.exists():
                shutil.rmtree(model)
            fresh.rename(model)
    except OSError as error:
        if _is_unpacked(model, expected):  # another process was faster
            return model
        raise ModelUnavailable(
            f"the model cannot be unpacked into {model.parent}: {error}; set {MODELS_VARIABLE} to another folder"
        ) from error
    return model


def _is_unpacked(model: Path, expected: str) -> bool:
    stamp = model / STAMP
    return stamp.exists() and stamp.read_text().strip() == expected


def _expected_sum(archive: Path) -> str:
    sums = archive.with_name("SHA256SUMS")
    try:
        for line in sums.read_text().splitlines():
            digest, _, name = line.partition("  ")
            if name == archive.name:
                return digest
    except OSError as error:
        raise ModelUnavailable(
            f"{sums} cannot be read ({error.strerror}); run from a clone of the repository"
        ) from error
    raise ModelUnavailable(f"{sums} has no line for {archive.name}; restore it with `git checkout`")


def _check(archive: Path, expected: str) -> None:
    try:
        with archive.open("rb") as content:
            found = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise ModelUnavailable(
            f"{archive} cannot be read ({error.strerror}); restore it with `git checkout`"
        ) from error
    if found != expected:
        raise ModelUnavailable(f"{archive} has the sum {found}, not {expected}; restore it with `git checkout`")


def main() -> int:
    """Unpack and print the model's path."""
    parser = argparse.ArgumentParser(prog="python -m engine.cpu.small_model", description=main.__doc__)
    parser.add_argument("--models", type=Path, help=f"folder to unpack into (default: {models_folder()})")
    try:
        print(unpack(parser.parse_args().models))
    except ModelUnavailable as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
