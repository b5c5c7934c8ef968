"""Whole searches with the rehearsal engine: real processes, real SQL, Prefect left out where it adds only time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import optuna
import psutil
import pytest
from optuna.trial import TrialState

import flows.tune as tuning
from engine.process_tree import LAUNCH_VARIABLE, environment_of
from flows.ending import Ending
from flows.parameters import TuneParameters
from flows.refused import Refused
from flows.trial import Told
from report.trial_facts import TrialFacts, feasible
from storage import Store

Search = Callable[..., Ending]


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Search:
    """Run the flow's own function; a trial is called as it stands instead of as a run in Prefect."""

    def directly(name: str, work: Callable[[], Told]) -> Told:
        return work()

    monkeypatch.setattr(tuning, "_as_run", directly)

    def run(space: str = "cpu", **given: object) -> Ending:
        parameters = TuneParameters(
            space=space,
            engine="rehearsal",
            storage=f"sqlite:///{tmp_path}/study.db",
            output=tmp_path / "runs",
            **given,  # type: ignore[arg-type]
        )
        return tuning.tune.fn(parameters)

    return run


def trials(tmp_path: Path, study: str) -> list[optuna.trial.FrozenTrial]:
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        return optuna.load_study(study_name=study, storage=store.optuna_storage()).get_trials()


def engines_left(tmp_path: Path) -> list[int]:
    """Processes of any launch whose log lies in this test's folder."""
    mine = str(tmp_path)
    left = []
    for process in psutil.process_iter():
        environment = environment_of(process.pid)
        if LAUNCH_VARIABLE in environment and mine in environment.get("PWD", mine):
            left.append(process.pid)
    return left


def test_a_search_leaves_leaderboard_launch_script_and_records(search: Search, tmp_path: Path) -> None:
    ending = search(trials=5)

    assert ending.rehearsal
    assert ending.winner is not None
    assert ending.baseline == 0
    assert ending.leaderboard is not None
    assert ending.launch_script is not None
    assert "REHEARSAL" in ending.leaderboard.read_text()
    assert "REHEARSAL" in ending.launch_script.read_text()
    assert len(ending.against_baseline) == 2
    done = trials(tmp_path, "cpu-rehearsal")
    first = TrialFacts.of(done[0])
    assert first is not None
    assert first.is_baseline
    assert first.rehearsal
    assert done[0].value == pytest.approx(1.0)
    assert not any(trial.state == TrialState.RUNNING for trial in done)
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        launches = store.launches("cpu-rehearsal")
        assert launches
        assert all(launch.rehearsal for launch in launches)
        assert all(launch.ended_at for launch in launches)
        measured = store.measurements("cpu-rehearsal")
        assert measured
        samples = store.samples(measured[0].id)
        assert len(samples) >= measured[0].measurement.level.requests
        assert all(sample.output_tokens > 0 for sample in samples if sample.error is None)
        started = [one.phase.name for one in store.phases(launches[0].id)]
        assert "ready" in started
    assert not engines_left(tmp_path)


def test_the_enqueued_configurations_of_a_space_are_tried_before_the_samplers_own(
    search: Search, tmp_path: Path
) -> None:
    search(trials=3)
    done = trials(tmp_path, "cpu-rehearsal")
    assert done[0].params["speculation"] == "off"
    assert done[1].params["speculation"] == "nextn"
    assert done[1].params["steps"] == 3


def test_a_crashing_configuration_is_a_violated_constraint_and_the_search_goes_on(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(trials=1)  # the baseline of this environment is known from here on
    monkeypatch.setenv("REHEARSAL_FAULT", "oom@mamba and KV cache")
    search(trials=1)
    monkeypatch.delenv("REHEARSAL_FAULT")
    ending = search(trials=1)

    first, crashed, last = trials(tmp_path, "cpu-rehearsal")[:3]
    assert feasible(first)
    assert not feasible(crashed)
    facts = TrialFacts.of(crashed)
    assert facts is not None
    assert facts.blame == "configuration"
    assert facts.failure is not None
    assert "emory" in facts.failure
    assert last.state.is_finished()
    assert ending.winner is not None


def test_a_failing_baseline_stops_the_search_and_says_why(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REHEARSAL_FAULT", "crash@weights:TP0")
    ending = search(trials=5)
    assert ending.trials == 1
    assert ending.winner is None
    assert ending.stopped_because is not None
    assert "baseline" in ending.stopped_because


def test_garbage_answers_are_refused_before_anything_counts(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search(trials=1)
    monkeypatch.setenv("REHEARSAL_FAULT", "garbage")
    search(trials=1)
    wrong = trials(tmp_path, "cpu-rehearsal")[1]
    facts = TrialFacts.of(wrong)
    assert facts is not None
    assert facts.failure is not None
    assert "wrong answers" in facts.failure
    assert not feasible(wrong)


def test_a_continued_study_keeps_its_baseline_and_does_not_measure_it_again(search: Search, tmp_path: Path) -> None:
    search(trials=2)
    ending = search(trials=1)
    assert ending.trials == 3
    baselines = [
        facts for trial in trials(tmp_path, "cpu-rehearsal") if (facts := TrialFacts.of(trial)) and facts.is_baseline
    ]
    assert len(baselines) == 1


def test_two_trials_that_are_one_configuration_share_one_launch(search: Search, tmp_path: Path) -> None:
    search(trials=1)
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        study = optuna.load_study(study_name="cpu-rehearsal", storage=store.optuna_storage())
        study.enqueue_trial(study.trials[0].params)
        before = len(store.launches("cpu-rehearsal"))
    # the enqueued configurations of the space come after the one that was enqueued by hand
    search(trials=1)
    twin = next(facts for trial in trials(tmp_path, "cpu-rehearsal")[1:] if (facts := TrialFacts.of(trial)))
    with Store.open(f"sqlite:///{tmp_path}/study.db") as store:
        launched = len(store.launches("cpu-rehearsal")) - before
    assert (twin.reused_from == 0 and launched == 0) or launched == 1


def test_no_secret_of_the_environment_reaches_the_database(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted_secret_0123456789")
    search(trials=1)
    with sqlite3.connect(tmp_path / "study.db") as database:
        dump = "\n".join(database.iterdump())
    assert "hf_planted_secret" not in dump
    for path in (tmp_path / "runs").rglob("*"):
        if path.is_file():
            assert b"hf_planted_secret" not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"space": "no-such-space"}, ["no-such-space"]),
        ({"prompts": Path("/nowhere/prompts.jsonl")}, ["/nowhere/prompts.jsonl"]),
    ],
)
def test_bad_input_is_refused_in_one_sentence(search: Search, given: dict[str, object], names: list[str]) -> None:
    with pytest.raises(Refused) as refused:
        search(**given)
    sentence = str(refused.value)
    assert "\n" not in sentence
    assert all(name in sentence for name in names)


def test_an_unwritable_database_is_refused_in_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.write_text("no folder")
    parameters = TuneParameters(space="cpu", engine="rehearsal", storage=f"sqlite:///{file}/study.db", output=tmp_path)
    with pytest.raises(Refused) as refused:
        tuning.tune.fn(parameters)
    assert "\n" not in str(refused.value)
    assert "study.db" in str(refused.value)


def test_the_outcome_is_written_as_json_too(search: Search, tmp_path: Path) -> None:
    search(trials=1)
    outcome = json.loads((tmp_path / "runs" / "cpu-rehearsal" / "ending.json").read_text())
    assert outcome["study"] == "cpu-rehearsal"
    assert outcome["rehearsal"] is True
