"""What a space needs from this machine before anything starts: its model, its interpreter, its prompts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from search_spaces.space import Space

_PATIENCE_S = 30  # for a Python to start; far more than it takes on a busy machine
# Whether the package that the command runs is there, found without importing it.
_PROBE = "import importlib.util, sys; print('python'); print(importlib.util.find_spec(sys.argv[1]) is not None)"


def refusals(space: Space, *, rehearsal: bool = False) -> list[str]:
    """Why the space cannot be searched here, a sentence each with the remedy; empty where it can.

    A rehearsal needs neither the model nor the interpreter of the real engine.
    """
    real = () if rehearsal else (*_model(space), *_interpreter(space))
    return [*real, *_prompts(space)]


def _model(space: Space) -> Iterator[str]:
    path = space.model.path
    if not path.startswith(("/", "./", "../", "~")):
        return
    folder = Path(path).expanduser()
    mend = f"put the model there or change model.path of the space {space.name} (or the variable it reads)"
    if not folder.is_dir():
        yield f"the model folder {path} does not exist; {mend}"
    elif not (folder / "config.json").is_file():
        yield f"the model folder {path} has no config.json; {mend}"


def _interpreter(space: Space) -> Iterator[str]:
    interpreter = space.engine.argv[0]
    mend = (
        f"change engine.interpreter of the space {space.name} (or the variable it reads) to the Python that has SGLang"
    )
    found = shutil.which(interpreter)
    if found is None:
        there = Path(interpreter).exists()
        yield f"the interpreter {interpreter} {'is not executable' if there else 'does not exist'}; {mend}"
        return
    package = _package(space.engine.argv)
    try:
        answer = subprocess.run(
            [found, "-c", _PROBE, package or "sys"],
            env={**os.environ, **space.engine.base_environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        yield f"the interpreter {interpreter} does not run; {mend}"
        return
    words = answer.stdout.decode(errors="replace").split()
    if answer.returncode != 0 or words[:1] != ["python"]:
        yield f"the interpreter {interpreter} is no Python; {mend}"
    elif package and words[1:] != ["True"]:
        yield f"the interpreter {interpreter} has no package {package}; install it there, or {mend}"


def _package(argv: tuple[str, ...]) -> str | None:
    """The package behind ``-m``: ``sglang`` of ``python -m sglang.launch_server``."""
    if "-m" in argv and argv.index("-m") + 1 < len(argv):
        return argv[argv.index("-m") + 1].partition(".")[0]
    return None


def _prompts(space: Space) -> Iterator[str]:
    prompts = space.benchmark.prompts
    if prompts is None:
        return
    mend = f"change benchmark.prompts of the space {space.name} or leave it out for the bundled prompts"
    try:
        with Path(prompts).open(encoding="utf-8") as file:
            first = next((line for line in file if line.strip()), None)
    except OSError as error:
        yield f"the prompts {prompts} cannot be read ({error.strerror}); {mend}"
        return
    except UnicodeDecodeError:
        yield f"the prompts {prompts} are no UTF-8 text; save them as UTF-8"
        return
    if first is None:
        yield f"the prompts {prompts} are empty; {mend}"
