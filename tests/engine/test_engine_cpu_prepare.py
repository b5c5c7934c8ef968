"""Installing the CPU engine and unpacking the small model: what is done once, redone, and refused."""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.cpu import install as installing
from engine.cpu.install import InstallationFailed, install, is_installed
from engine.cpu.program import STAND_INS, cpu_program
from engine.cpu.small_model import ARCHIVES, ModelUnavailable, unpack


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands of the installer, which are written down instead of run."""
    commands: list[list[str]] = []

    def write_down(_: str, command: Sequence[str], environment: object = None) -> None:
        commands.append(list(command))
        if "venv" in command:
            folder = Path(command[-1])
            (folder / "bin").mkdir(parents=True)
            (folder / "bin" / "python").touch()
            (folder / "pyvenv.cfg").touch()

    monkeypatch.setattr(installing, "_run", write_down)
    return commands


def test_an_installation_is_made_once(tmp_path: Path, ran: list[list[str]]) -> None:
    python = install(tmp_path / "engine", {})
    assert python == tmp_path / "engine" / "bin" / "python"
    assert is_installed(tmp_path / "engine")
    count = len(ran)
    assert install(tmp_path / "engine", {}) == python
    assert len(ran) == count


def test_what_an_interrupted_installation_left_is_made_anew(tmp_path: Path, ran: list[list[str]]) -> None:
    install(tmp_path, {})
    (tmp_path / installing.STAMP).unlink()
    (tmp_path / "half").touch()
    install(tmp_path, {})
    assert not (tmp_path / "half").exists()
    assert is_installed(tmp_path)


def test_other_pins_make_an_installation_out_of_date(
    tmp_path: Path, ran: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "engine", {})
    other = tmp_path / "requirements.txt"
    other.write_text("numpy==1\n")
    monkeypatch.setattr(installing, "REQUIREMENTS", other)
    assert not is_installed(tmp_path / "engine")


def test_a_folder_that_is_something_else_is_left_alone(tmp_path: Path, ran: list[list[str]]) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(InstallationFailed, match="no virtual environment and not empty"):
        install(tmp_path, {})
    assert (tmp_path / "thesis.txt").exists()


def test_the_index_for_torch_is_asked_for_torch_alone(tmp_path: Path, ran: list[list[str]]) -> None:
    install(tmp_path, {"QUIETLANE_TORCH_INDEX": "https://example.org/cpu"})
    asked = [command for command in ran if "https://example.org/cpu" in command]
    assert len(asked) == 1
    assert str(installing.TORCH) in asked[0]
    assert "--no-deps" in asked[0]
    assert str(installing.REQUIREMENTS) not in asked[0]


def test_a_step_that_fails_shows_the_end_of_what_it_said(tmp_path: Path) -> None:
    with pytest.raises(InstallationFailed, match=r"(?s)a step failed with exit status 3; .*no such package"):
        installing._run("a step", [sys.executable, "-c", "import sys; print('no such package'); sys.exit(3)"])


def test_the_program_of_the_cpu_brings_its_stand_ins_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    program = cpu_program(Path("/somewhere/python"))
    assert program.interpreter == "/somewhere/python"
    assert program.environment["PYTHONPATH"] == str(STAND_INS)
    assert (STAND_INS / "sitecustomize.py").exists()


def archive_in(folder: Path, content: bytes = b"weights", expected: str | None = None) -> Path:
    """An archive of a model named as the real one, and its sum."""
    (folder / "tinymtp").mkdir(parents=True)
    (folder / "tinymtp" / "model.safetensors").write_bytes(content)
    archive = folder / "tinymtp.tar.xz"
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(folder / "tinymtp", arcname="tinymtp")
    digest = expected or hashlib.sha256(archive.read_bytes()).hexdigest()
    (folder / "SHA256SUMS").write_text(f"{digest}  {archive.name}\n")
    return archive


def test_a_model_is_unpacked_once_and_anew_when_its_archive_changes(tmp_path: Path) -> None:
    archive = archive_in(tmp_path / "first")
    model = unpack(tmp_path / "models", archive)
    weights = model / "model.safetensors"
    unpacked_at = weights.stat().st_ino
    assert unpack(tmp_path / "models", archive) == model
    assert weights.stat().st_ino == unpacked_at
    unpack(tmp_path / "models", archive_in(tmp_path / "second", b"other weights"))
    assert weights.read_bytes() == b"other weights"
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tinymtp"]


def test_an_archive_with_another_sum_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"has the sum .* restore it with `git checkout`"):
        unpack(tmp_path / "models", archive_in(tmp_path / "archive", expected="0" * 64))
    assert not (tmp_path / "models").exists()


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="SHA256SUMS cannot be read"):
        unpack(tmp_path / "models", tmp_path / "tinymtp.tar.xz")


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelUnavailable, match="set QUIETLANE_MODELS to another folder"):
        unpack(tmp_path / "file", archive_in(tmp_path / "archive"))


def test_the_tracked_archive_is_the_one_that_its_sum_says() -> None:
    archive = ARCHIVES / "tinymtp.tar.xz"
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert f"{digest}  {archive.name}" in (ARCHIVES / "SHA256SUMS").read_text().splitlines()
