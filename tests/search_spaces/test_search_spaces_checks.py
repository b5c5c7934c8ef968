"""What this machine lacks for a space is refused before anything starts, in one sentence each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from search_spaces import Space
from search_spaces.checks import refusals
from search_spaces.reader import parse

TEXT = """\
name: small
description: a space for these tests
model: {{path: {model}}}
engine: {{interpreter: {interpreter}, command: [python, -m, {module}]}}
parameters: [{{name: a, note: a, flag: --a, values: [1]}}]
benchmark: {{levels: [{{concurrency: 1}}]{prompts}}}
"""


def space(
    tmp_path: Path,
    model: str = "some/id",
    interpreter: str = sys.executable,
    module: str = "json.tool",
    prompts: str = "",
) -> Space:
    text = TEXT.format(model=model, interpreter=interpreter, module=module, prompts=prompts and f", prompts: {prompts}")
    return parse(text, "small.yaml", tmp_path, {})


def test_what_has_all_it_needs_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "mine.jsonl").write_text('{"prompt": "a"}\n')
    assert refusals(space(tmp_path, model=str(tmp_path), prompts="mine.jsonl")) == []


@pytest.mark.parametrize("model", ["/not/there", "./not/there", "~/not/there"])
def test_a_missing_model_folder_is_refused(tmp_path: Path, model: str) -> None:
    [sentence] = refusals(space(tmp_path, model=model))
    assert sentence.startswith(f"the model folder {model} does not exist; put the model there or change model.path")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    [sentence] = refusals(space(tmp_path, model=str(tmp_path)))
    assert "has no config.json" in sentence


def test_an_id_on_the_hub_is_left_to_the_engine(tmp_path: Path) -> None:
    assert refusals(space(tmp_path, model="Qwen/Qwen3-0.6B")) == []


def test_a_missing_interpreter_is_refused(tmp_path: Path) -> None:
    [sentence] = refusals(space(tmp_path, interpreter="/not/there/python"))
    assert sentence.startswith("the interpreter /not/there/python does not exist; change engine.interpreter")


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "python"
    file.write_text("text")
    [sentence] = refusals(space(tmp_path, interpreter=str(file)))
    assert "is not executable" in sentence


@pytest.mark.parametrize("script", ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "#!/not/there\n"])
def test_a_program_that_is_no_python_is_refused(tmp_path: Path, script: str) -> None:
    file = tmp_path / "python"
    file.write_text(script)
    file.chmod(0o755)
    [sentence] = refusals(space(tmp_path, interpreter=str(file)))
    assert "is no Python" in sentence or "does not run" in sentence


def test_a_python_without_the_engine_is_refused(tmp_path: Path) -> None:
    [sentence] = refusals(space(tmp_path, module="nosuchengine.launch_server"))
    assert "has no package nosuchengine; install it there" in sentence


def test_prompts_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    [sentence] = refusals(space(tmp_path, prompts="mine.jsonl"))
    assert "mine.jsonl cannot be read (No such file or directory); change benchmark.prompts" in sentence
    (tmp_path / "mine.jsonl").write_text("\n")
    [sentence] = refusals(space(tmp_path, prompts="mine.jsonl"))
    assert "are empty" in sentence
    (tmp_path / "mine.jsonl").write_bytes(b"\xff\xff")
    [sentence] = refusals(space(tmp_path, prompts="mine.jsonl"))
    assert "are no UTF-8 text" in sentence


def test_a_rehearsal_needs_neither_model_nor_interpreter(tmp_path: Path) -> None:
    assert refusals(space(tmp_path, model="/not/there", interpreter="/not/there/python"), rehearsal=True) == []
