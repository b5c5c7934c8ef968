"""The launch script: it must start exactly what was measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from report.launch_script import launch_script


def test_the_script_runs_the_command_with_its_environment(tmp_path: Path) -> None:
    show = "import os, sys; print(sys.argv[1:]); print(os.environ['NCCL_PROTO'])"
    text = launch_script(
        [sys.executable, "-c", show, "--json", '{"a": "it\'s $HOME"}', "--flag"],
        {"NCCL_PROTO": "LL,LL128 $(false)"},
        title="a title",
        facts=["a fact"],
        rehearsal=False,
    )
    script = tmp_path / "winner.sh"
    script.write_text(text)
    ran = subprocess.run(
        ["sh", str(script), "--more"], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    arguments, protocol = ran.stdout.splitlines()
    assert arguments == str(["--json", '{"a": "it\'s $HOME"}', "--flag", "--more"])
    assert protocol == "LL,LL128 $(false)"
    assert "REHEARSAL" not in text


def test_a_rehearsed_script_says_so() -> None:
    assert "REHEARSAL" in launch_script(["python"], {}, title="t", facts=[], rehearsal=True)
