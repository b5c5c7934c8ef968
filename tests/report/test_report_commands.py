"""show, compare, explain, export, status and report, as they are typed."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from flows.reading_commands import add_commands
from report.export import FORMS, export
from report.status import status
from report.study_record import StudyRecord

app = typer.Typer()
add_commands(app)


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


def answer(*words: str) -> str:
    result = typed(*words)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def test_show_tells_settings_start_levels_and_command(real_url: str) -> None:
    text = answer("show", "1", "--storage", real_url)
    for words in (
        "score at most 0.964",
        "--speculative-num-steps: 3",
        "draft-extend graphs",
        "366.5",
        "trial-0001.log",
    ):
        assert words in text


@pytest.mark.parametrize(
    "words", [("show", "1"), ("compare", "0", "1"), ("explain", "6"), ("status",), ("export", "1")]
)
def test_every_command_speaks_json(real_url: str, words: tuple[str, ...]) -> None:
    assert json.loads(answer(*words, "--storage", real_url, "--json"))


def test_compare_gives_intervals_and_what_the_engine_resolved(made_url: str) -> None:
    text = answer("compare", "0", "1", "--study", "made", "--storage", made_url)
    assert "faster by 30.0 %" in text
    assert "--speculative-steps: absent, 3" in text


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("0", "is the baseline"),
        ("1", "scores best"),
        ("2", "1 other trials failed alike: 3"),
        ("2", "lower --mem-fraction-static"),
        ("4", "was stopped early after c1"),
        ("5", "shares"),
        ("6", "a rule of the space forbids it"),
    ],
)
def test_explain_says_why(made_url: str, number: str, words: str) -> None:
    assert words in answer("explain", number, "--study", "made", "--storage", made_url)


def test_an_invented_figure_is_marked_wherever_it_is_read(made_url: str) -> None:
    for words in (("show", "1"), ("compare", "0", "1"), ("explain", "1"), ("status",), ("export", "1")):
        study = ["made-rehearsal"] if words == ("status",) else ["--study", "made-rehearsal"]
        assert "REHEARSAL" in answer(*words, *study, "--storage", made_url)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "99", "--study", "made"), "there is no trial 99 in study 'made', which has trials 0 to 6"),
        (("show", "1", "--study", "nothing"), "no study 'nothing' (it holds"),
        (("show", "1"), "several studies"),
        (("export", "6", "--study", "made"), "trial 6 of 'made' was never launched"),
        (("export", "1", "--study", "made", "--as", "exe"), "write one of sh, docker, compose, systemd, k8s"),
        (("report", "made", "--output", "/proc/no/x.html"), "choose another place with --output"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(made_url: str, words: tuple[str, ...], said: str) -> None:
    result = typed(*words, "--storage", made_url)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_database_that_is_not_there_is_not_created(tmp_path: Path) -> None:
    result = typed("status", "--storage", f"sqlite:///{tmp_path / 'no.db'}")
    assert result.exit_code == 2
    assert not (tmp_path / "no.db").exists()


def test_the_winner_is_exported_where_no_trial_is_named(made_url: str, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    answer("export", "--study", "made", "--storage", made_url, "--output", str(file))
    assert "--speculative-steps 3" in file.read_text()
    assert file.stat().st_mode & 0o111


def test_report_writes_page_and_twin(made_url: str, tmp_path: Path) -> None:
    found = json.loads(answer("report", "made", "--storage", made_url, "--output", str(tmp_path), "--json"))
    assert Path(found["report"]).read_text().startswith("<!doctype html>")
    assert Path(found["markdown"]).exists()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_names_versions_and_figures_that_were_measured(made: StudyRecord, form: str) -> None:
    text = export(made, 1, form)
    assert "sglang 0.5.23, torch 2.9.0" in text
    assert "c8 440.0 tok/s" in text
    assert "25670" not in text


@pytest.mark.parametrize("form", ["sh", "docker"])
def test_scripts_are_posix_shell_and_keep_every_word(made: StudyRecord, form: str, tmp_path: Path) -> None:
    file = tmp_path / "run.sh"
    file.write_text(export(made, 1, form))
    assert subprocess.run(["sh", "-n", file], check=False).returncode == 0
    words = shlex.split(file.read_text().split("exec ", 1)[1].replace("\\\n", ""))
    assert words[-1] == "$@"
    assert words[words.index("--tp-size") :][:2] == ["--tp-size", "2"]


def test_a_container_listens_to_the_outside_with_its_own_python(made: StudyRecord) -> None:
    service = yaml.safe_load(export(made, 1, "compose"))["services"]["made-trial-1"]
    assert service["image"].endswith("sglang:v0.5.23")
    assert service["command"][:5] == ["python3", "-m", "sglang.launch_server", "--host", "0.0.0.0"]
    assert service["environment"]["NCCL_ALGO"] == "Ring it"
    assert service["environment"]["PRICE"] == "5$$ a%h"
    assert "PYTHONPATH" not in service["environment"]
    assert service["deploy"]["resources"]["reservations"]["devices"][0]["count"] == 2


def test_kubernetes_gets_a_deployment_and_a_service_for_the_same_pods(made: StudyRecord) -> None:
    deployment, service = yaml.safe_load_all(export(made, 1, "k8s"))
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"] == deployment["spec"]["selector"]["matchLabels"]
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert {mount["name"] for mount in container["volumeMounts"]} <= {one["name"] for one in pod["spec"]["volumes"]}


def test_a_unit_escapes_what_systemd_would_read(made: StudyRecord, tmp_path: Path) -> None:
    text = export(made, 1, "systemd")
    assert 'Environment="PRICE=5$ a%%h"' in text
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "made.service"
        unit.write_text(text.replace("/opt/venv/bin/python", "/bin/true"))
        checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert "Failed to parse" not in checked.stderr


def test_status_counts_what_is_there(made: StudyRecord) -> None:
    assert made.launches[-1].ended_at is not None
    found = status(made, now=made.launches[-1].ended_at + 60)
    assert found.winner == 1
    assert found.quiet_s == pytest.approx(60)
    assert found.running == ()
