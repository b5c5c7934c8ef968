"""SGLang's own client beside ours: its command, its figures, and what happens without it."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from benchmark.crosscheck import command_line, run
from benchmark.plan import Plan
from benchmark.prompt_source import PromptSource
from benchmark.prompts import load
from benchmark.results import Level
from engine.program import Program

LEVEL = Level(4, None, 64, 12)


def interpreter(folder: Path, body: str) -> Program:
    """A program whose interpreter does what the body says instead of running sglang.bench_serving."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\narguments = sys.argv[1:]\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return Program((str(path), "-m", "sglang.launch_server"), {"MARK": "yes"})


WRITES = """
data = [json.loads(line) for line in open(arguments[arguments.index("--dataset-path") + 1])]
with open(arguments[arguments.index("--output-file") + 1], "a") as file:
    file.write(json.dumps({"completed": len(data), "output_throughput": 99.5, "mark": os.environ["MARK"],
                           "turns": [row["conversations"][0]["content"] for row in data]}) + "\\n")
"""


def test_its_figures_come_back_as_it_names_them_and_it_gets_our_prompts(tmp_path: Path) -> None:
    figures = run(interpreter(tmp_path, WRITES), "http://127.0.0.1:1", LEVEL, PromptSource(load()), Plan())
    expected = PromptSource(load()).begin(LEVEL)
    assert figures["turns"] == [expected.measured(index).text for index in range(12)]
    assert (figures["completed"], figures["output_throughput"], figures["mark"]) == (12, 99.5, "yes")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("print('No module named sglang'); sys.exit(1)", "exit status 1, No module named sglang"),
        ("print('all done')", "all done"),
        (
            "open(arguments[arguments.index('--output-file') + 1], 'w').write(json.dumps({'completed': 0}))",
            "completed no request",
        ),
        ("time.sleep(60)", "did not end within 0.5 s"),
    ],
)
def test_where_it_cannot_run_one_sentence_says_why(tmp_path: Path, body: str, sentence: str) -> None:
    program = interpreter(tmp_path, body)
    found = run(
        program, "http://127.0.0.1:1", LEVEL, PromptSource(load()), Plan(), timeout_s=5 if "sleep" not in body else 0.5
    )
    assert list(found) == ["unavailable"]
    assert sentence in found["unavailable"]


def test_a_missing_interpreter_and_the_rehearsal_engine_are_said(tmp_path: Path) -> None:
    missing = run(Program((str(tmp_path / "none"),)), "http://127.0.0.1:1", LEVEL, PromptSource(load()), Plan())
    assert "cannot be run" in missing["unavailable"]
    rehearsal = run(Program(("python",), rehearsal=True), "http://127.0.0.1:1", LEVEL, PromptSource(load()), Plan())
    assert "rehearsal" in rehearsal["unavailable"]


def test_a_dead_engine_ends_it_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    body = f"child = os.fork()\nif child: open({str(pid_file)!r}, 'w').write(str(child))\ntime.sleep(60)"

    def check() -> None:
        if pid_file.exists() and pid_file.read_text():
            raise RuntimeError("the engine died")

    began = time.monotonic()
    with pytest.raises(RuntimeError, match="the engine died"):
        run(interpreter(tmp_path, body), "http://127.0.0.1:1", LEVEL, PromptSource(load()), Plan(), check)
    assert time.monotonic() - began < 20
    child = int(pid_file.read_text())
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_sampling_and_length_are_those_of_the_plan(tmp_path: Path) -> None:
    program = Program(("python",), dict(os.environ))
    plan = Plan(temperature=0.7, ignore_eos=False)
    words = command_line(program, "http://h:1", LEVEL, plan, Path("in"), Path("out"), "/model")
    assert words[words.index("--sharegpt-output-len") + 1] == "64"
    assert words[words.index("--max-concurrency") + 1] == "4"
    assert "--disable-ignore-eos" in words
    body = json.loads(words[words.index("--extra-request-body") + 1])
    assert body == {"sampling_params": {"temperature": 0.7, "max_new_tokens": 64, "ignore_eos": False}}
    chat = command_line(
        program, "http://h:1", LEVEL, Plan(endpoint="/v1/chat/completions"), Path("in"), Path("out"), None
    )
    assert chat[chat.index("--backend") + 1] == "sglang-oai-chat"
