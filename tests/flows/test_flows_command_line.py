"""The command line as a person meets it: help, refusals in a sentence, exit statuses."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

QUIETLANE = str(Path(sys.executable).with_name("quietlane"))


def run(*arguments: str, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [QUIETLANE, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
        check=False,
    )


def refused(ran: subprocess.CompletedProcess[str]) -> str:
    """The one sentence of a refusal."""
    assert ran.returncode == 2, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    lines = [line for line in ran.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, ran.stderr
    return lines[0]


def test_help_names_every_command() -> None:
    said = run("--help").stdout
    for command in ("tune", "watch", "doctor", "leaderboard", "space"):
        assert command in said


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["tune", "no-such-space"], ["no-such-space"]),
        (["tune", "cpu", "--trials", "0"], ["--trials", "0"]),
        (["tune", "cpu", "--gpus", "a,b"], ["--gpus", "a,b"]),
        (["tune", "cpu", "--engine", "vllm"], ["--engine", "vllm"]),
        (["tune", "cpu", "--prompts", "/nowhere.jsonl"], ["/nowhere.jsonl"]),
        (["watch", "/nowhere.log"], ["/nowhere.log"]),
        (["leaderboard", "none", "--storage", "nonsense://x"], ["nonsense"]),
        (["space", "check", "/nowhere.yaml"], ["/nowhere.yaml"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence_that_names_it(arguments: list[str], names: list[str]) -> None:
    sentence = refused(run(*arguments))
    for name in names:
        assert name in sentence


def test_a_missing_model_folder_is_refused_before_anything_starts() -> None:
    sentence = refused(run("tune", "cpu", QUIETLANE_TINYMTP="/nowhere/model", QUIETLANE_CPU_ENGINE=sys.executable))
    assert "/nowhere/model" in sentence


def test_a_wrong_interpreter_is_refused_before_anything_starts(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    sentence = refused(run("tune", "cpu", QUIETLANE_TINYMTP=str(model), QUIETLANE_CPU_ENGINE="/nowhere/python"))
    assert "/nowhere/python" in sentence


def test_a_port_in_use_is_refused_with_its_holder() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        sentence = refused(run("tune", "cpu", "--engine", "rehearsal", "--port", str(port)))
    assert str(port) in sentence
    assert str(os.getpid()) in sentence


def test_the_schema_of_a_space_is_json() -> None:
    assert json.loads(run("space", "schema").stdout)["title"]
