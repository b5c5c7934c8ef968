"""Notes and files for Optuna Dashboard."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from optuna.artifacts import FileSystemArtifactStore, download_artifact, get_all_artifact_meta
from optuna_dashboard import get_note
from report_made_study import make_study

from report.dashboard_notes import save_notes, save_trial_note, trial_note
from report.study_record import StudyRecord, read_study
from storage import Store


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "### Trial 1: speculation=nextn steps=3"),
        (1, "score **1.150**, winner"),
        (1, "| `--speculative-steps` | 3 | absent |"),
        (1, "Start: imports 8 s, weights 10 s, target graphs 10 s"),
        (1, "--tp-size 2"),
        (2, "**Failed** (configuration): TP1, target graphs: CUDA ran out of memory"),
        (2, "What to do: lower --mem-fraction-static"),
        (2, "torch.OutOfMemoryError"),
        (4, "score at most **0.900**"),
    ],
)
def test_a_note_says_what_a_trial_was(made: StudyRecord, number: int, words: str) -> None:
    assert words in trial_note(made, number)


def test_notes_are_where_the_dashboard_reads_them_and_are_written_once(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'noted.db'}") as store:
        study = make_study(store, "noted", rehearsal=True)
        record = read_study(study, store)
        save_trial_note(study, record, 0)
        assert save_notes(study, store) == 7
        assert save_notes(study, store) == 1
        assert "REHEARSAL" in get_note(study)
        assert "is 14.7 % faster" in get_note(study)


def test_the_report_and_its_pictures_are_attached_to_the_study(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path / 'shown.db'}") as store:
        study = make_study(store, "shown")
        save_notes(study, store)
        metas = {meta.filename.partition("-")[2]: meta for meta in get_all_artifact_meta(study)}
        assert set(metas) == {"report.html", "history.svg", "levels.svg", "hours.svg"}
        for name in ("history.svg", "levels.svg", "hours.svg"):
            file = tmp_path / name
            download_artifact(
                artifact_store=FileSystemArtifactStore(str(store.folder)),
                artifact_id=metas[name].artifact_id,
                file_path=str(file),
            )
            assert ET.parse(file).getroot().tag.endswith("svg")
