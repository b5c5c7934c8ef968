"""``quietlane confirm`` refuses what cannot be done in one sentence, before Prefect's server is started."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from flows.confirm_command import add_command


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)
    add_command(app)
    return app


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["cpu", "--engine", "rehearsal"], "there is no study 'cpu-rehearsal'"),
        (["no-such-space", "--engine", "rehearsal"], "no-such-space"),
        (["cpu", "--until", "soon"], "no deadline"),
        (["cpu", "--launches", "1"], "--launches"),
        (["cpu", "--gpus", "all"], "--gpus"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(app: typer.Typer, tmp_path: Path, words: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["confirm", *words, "--storage", f"sqlite:///{tmp_path}/none.db"])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
