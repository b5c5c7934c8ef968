"""Evidence is always there in time, whatever is missing or broken."""

import os
import sys
import time
from pathlib import Path

import pytest

from engine import evidence
from engine.process_tree import read_process
from engine.vital_signs import take


def test_evidence_of_this_very_process_has_every_text(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"[2026-11-30 20:00:00 TP1] Load weight begin.\n\xff\xfe\n[2026-11-30 20:00:01 TP0] hello\rx\n")
    me = read_process(os.getpid())
    assert me is not None
    taken = evidence.collect([me], log)
    assert set(taken) == {"taken at", "stacks", "processes", "gpus", "kernel log", "sockets", "last lines"}
    assert f"pid {os.getpid()}" in taken["stacks"]
    assert "TP1:\nLoad weight begin." in taken["last lines"]
    assert "TP0:\nhello" in taken["last lines"]


def test_ended_processes_and_a_missing_log_are_no_errors(tmp_path: Path) -> None:
    me = read_process(os.getpid())
    assert me is not None
    taken = evidence.collect([me._replace(pid=2**22 + 1)], tmp_path / "none")
    assert "none" in taken["last lines"]
    assert "(ended)" in taken["stacks"]


def test_a_tool_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(60)\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    began = time.monotonic()
    assert evidence.run_tool(["py-spy", "dump"], timeout_s=0.3) == "(py-spy did not answer within 0 s)"
    assert time.monotonic() - began < 5
    assert evidence.run_tool(["no-such-tool"]) is None


def test_a_source_that_breaks_says_so_in_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> str:
        raise ZeroDivisionError("made up")

    monkeypatch.setattr(evidence, "stacks", broken)
    assert evidence.collect([], tmp_path / "log")["stacks"] == "(ZeroDivisionError: made up)"


def test_vital_signs_of_a_working_process_move() -> None:
    me = read_process(os.getpid())
    assert me is not None
    before = take([me], 10)
    deadline = time.process_time() + 0.2
    while time.process_time() < deadline:
        pass
    me = read_process(os.getpid())
    assert me is not None
    after = take([me], 10)
    assert after.cpu_s[os.getpid()] > before.cpu_s[os.getpid()]
    assert after.io_bytes > 0
    assert after.compilers == ()
