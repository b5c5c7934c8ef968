"""The flow ``confirm`` and what nights learn from each other, with the rehearsal engine and without Prefect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import optuna
import pytest

import flows.tune as tuning
from flows import opening
from flows.confirm import Confirmed, ConfirmParameters, confirm
from flows.finalists import overlapping
from flows.parameters import TuneParameters
from flows.priors import differing
from flows.refused import Refused
from report.trial_facts import TrialFacts
from storage import Store


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What search and verdict share; trials are no runs in Prefect here."""
    monkeypatch.setattr(tuning, "_as_run", lambda name, work: work())
    return {
        "space": "cpu",
        "engine": "rehearsal",
        "storage": f"sqlite:///{tmp_path}/study.db",
        "output": tmp_path / "runs",
    }


def search(shared: dict[str, Any], **given: Any) -> Any:
    return tuning.tune.fn(TuneParameters(**shared, **given))


def verdict(shared: dict[str, Any], **given: Any) -> Confirmed:
    return confirm.fn(ConfirmParameters(**shared, **given))


def test_finalists_and_baseline_are_launched_again_in_turn_and_the_verdict_is_written(
    shared: dict[str, Any], tmp_path: Path
) -> None:
    search(shared, trials=2)
    confirmed = verdict(shared, launches=3)
    assert confirmed.winner is not None
    assert confirmed.launches == 6
    assert set(confirmed.against_baseline) == {"trial 1"}
    assert len(confirmed.speculation) == 1
    folder = tmp_path / "runs" / "cpu-rehearsal"
    assert "REHEARSAL" in (folder / "confirm.md").read_text()
    figures = json.loads((folder / "confirm.json").read_text())
    assert [len(one["throughput"]) for one in figures["configurations"]] == [3, 3]
    assert confirmed.headline in (folder / "winner.sh").read_text()
    with Store.open(shared["storage"]) as store:
        again = store.launches("cpu-rehearsal", purpose="confirm")
        assert sorted(launch.trial_number or 0 for launch in again) == [0, 0, 0, 1, 1, 1]
        for began in (0, 2, 4):  # a round holds each of both once
            assert {launch.trial_number for launch in again[began : began + 2]} == {0, 1}
        assert store.artifacts("cpu-rehearsal", kind="confirm")


def test_a_finalist_that_no_longer_starts_is_out_and_the_others_go_on(
    shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import flows.confirm as confirming  # noqa: PLC0415 - patched here alone
    from engine.failure import EngineFailed, Failure  # noqa: PLC0415

    search(shared, trials=2)
    real = confirming.launch_and_measure

    def broken(*given: Any, trial_number: int | None, **more: Any) -> Any:
        if trial_number == 1:
            raise EngineFailed(Failure("TP0", "weights", "out of memory", "configuration", "", ""))
        return real(*given, trial_number=trial_number, **more)

    monkeypatch.setattr(confirming, "launch_and_measure", broken)
    confirmed = verdict(shared, launches=3)
    assert confirmed.winner == "baseline"
    assert "out of memory" in Path(confirmed.report or "").read_text()


def test_no_confirming_launch_starts_that_cannot_end_in_time(shared: dict[str, Any]) -> None:
    search(shared, trials=2)
    confirmed = verdict(shared, hours=0.01 / 3600)
    assert confirmed.launches == 0
    assert confirmed.winner is None
    assert confirmed.stopped_because is not None
    assert "budget ended" in confirmed.stopped_because


def test_a_study_without_anything_to_confirm_is_refused_in_one_sentence(shared: dict[str, Any]) -> None:
    search(shared, trials=1)
    with pytest.raises(Refused, match="run quietlane tune first"):
        verdict(shared)
    with pytest.raises(Refused, match="trial 7"):
        verdict(shared, trials=(7,))


def test_only_those_whose_interval_reaches_the_best_are_finalists() -> None:
    assert overlapping([1.0, 1.2, 1.19, 1.1], [0.02] * 4, best=1) == [1, 2]
    assert overlapping([1.0, 1.2, 1.19, 1.3], [0.02] * 4, best=1) == [1, 3, 2]


def test_another_study_of_this_environment_is_a_prior_and_one_of_another_environment_only_a_hint(
    shared: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    search(shared, trials=2)
    second = search(shared, trials=1, study="second")
    assert any("count as priors" in sentence for sentence in second.earlier_results)

    real = opening.describe
    monkeypatch.setattr(opening, "describe", lambda *given: {**real(*given), "versions": {"sglang": "0.5.99"}})
    third = search(shared, trials=1, study="third")
    assert not any("count as priors" in sentence for sentence in third.earlier_results)
    assert any("sglang none then, 0.5.99 now" in sentence for sentence in third.earlier_results)
    with Store.open(shared["storage"]) as store:
        study = optuna.load_study(study_name="third-rehearsal", storage=store.optuna_storage())
        facts = TrialFacts.of(study.trials[0])
        assert facts is not None
        assert facts.is_baseline  # the new environment measures its own baseline


def test_what_differs_between_environments_is_named() -> None:
    before = {"versions": {"sglang": "0.5.23", "torch": "2.11"}, "accelerators": {"driver": "580"}}
    now = {"versions": {"sglang": "0.5.24", "torch": "2.11"}, "accelerators": {"driver": "590"}}
    assert differing(before, now) == [
        "versions sglang 0.5.23 then, 0.5.24 now",
        "accelerators driver 580 then, 590 now",
    ]
