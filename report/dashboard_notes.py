"""What Optuna Dashboard shows beside its own plots: a note on each trial and on the study, and the report's files.

Its notes are plain Markdown; the files are seen when the dashboard is started with ``--artifact-dir`` on the store's
artifact folder.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import optuna
from optuna.artifacts import get_all_artifact_meta
from optuna.storages import BaseStorage

from report.charts import history_chart, hours_chart, levels_chart
from report.export import by_flag
from report.hours import PARTS, lasting
from report.html_report import as_html, as_picture
from report.markdown_report import as_markdown
from report.morning import Morning, morning
from report.morning_tables import levels_of_one
from report.show import Shown, ShownLaunch, shortly, show
from report.study_record import StudyRecord, read_study
from report.trial_facts import REHEARSED
from storage import Store
from storage.artifacts import keep, show_in_dashboard

# A note is one of many in a column of the dashboard: what is longer is in the log.
_MOST_EVIDENCE = 1500


@dataclass(frozen=True)
class _Finished:
    """What the dashboard needs of a trial to note on it; a finished one has no ``optuna.Trial`` any more."""

    study: optuna.Study
    storage: BaseStorage
    _trial_id: int


def trial_note(record: StudyRecord, number: int) -> str:
    """One trial as Markdown: outcome, levels, settings, phases, command. Raises ReportError."""
    found = show(record, number)
    parts = [
        _headline(found),
        _failure(record, found),
        _levels(found),
        _settings(found),
        _phases(found),
        _command(found),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def study_note(report: Morning) -> str:
    """The study as Markdown: the morning report."""
    return as_markdown(report)


def save_trial_note(study: optuna.Study, record: StudyRecord, number: int) -> None:
    """Put a trial's note where the dashboard looks for it, in place of an earlier one."""
    from optuna_dashboard import save_note  # noqa: PLC0415 - brings a web server

    target = _Finished(study, study._storage, record.trial(number)._trial_id)
    save_note(cast(Any, target), trial_note(record, number))


def save_notes(study: optuna.Study, store: Store, *, files: bool = True) -> int:
    """Note on every finished trial that changed, and on the study; with ``files``, attach report and pictures.

    Returns how many notes were written. Raises StorageError.
    """
    from optuna_dashboard import get_note, save_note  # noqa: PLC0415 - brings a web server

    record = read_study(study, store)
    report = morning(record, store)
    written = 0
    for trial in record.trials:
        if not trial.state.is_finished():
            continue
        target = cast(Any, _Finished(study, study._storage, trial._trial_id))
        note = trial_note(record, trial.number)
        if get_note(target) != note:
            save_note(target, note)
            written += 1
    save_note(study, study_note(report))
    if files:
        attach(study, store, report)
    return written + 1


def attach(study: optuna.Study, store: Store, report: Morning) -> list[str]:
    """Attach the report and its pictures to the study, each only where its content is new. Returns the new names."""
    pictures = {
        "history.svg": history_chart(report.history),
        "levels.svg": levels_chart(report.levels),
        "hours.svg": hours_chart(report.hours),
    }
    texts = {"report.html": as_html(report), **{name: as_picture(svg) for name, svg in pictures.items() if svg}}
    known = {meta.filename for meta in get_all_artifact_meta(study)}
    added = []
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            source = Path(folder) / name
            source.write_text(text, encoding="utf-8")
            kept = keep(source, store.folder, store.redactor)
            if kept.path.name not in known:
                show_in_dashboard(kept, store.folder, study)
                added.append(name)
    return added


def _headline(found: Shown) -> str:
    bound = "at most " if found.score_is_bound else ""
    score = "" if found.score is None else f", score {bound}**{found.score:.3f}**"
    marks = "".join(
        f", {word}" for word, true in (("baseline", found.is_baseline), ("winner", found.is_winner)) if true
    )
    lines = [f"### Trial {found.number}: {found.label}", "", f"{found.outcome.split(':')[0]}{score}{marks}"]
    if found.rehearsal:
        lines[1:1] = ["", f"> **{REHEARSED}**"]
    if found.note:
        lines += ["", found.note]
    return "\n".join(lines)


def _failure(record: StudyRecord, found: Shown) -> str:
    if not found.failure:
        return ""
    lines = [f"**Failed** ({found.blame}): {found.failure}"]
    if found.remedy:
        lines += ["", f"What to do: {found.remedy}"]
    launch = record.main_launch(found.number)
    evidence = launch.failure.evidence if launch and launch.failure else ""
    if evidence:
        lines += ["", "```text", evidence.replace("```", "'''")[:_MOST_EVIDENCE], "```"]
    return "\n".join(lines)


def _levels(found: Shown) -> str:
    return "\n".join(levels_of_one(found.levels)) if found.levels else ""


def _settings(found: Shown) -> str:
    if not found.settings:
        return ""
    rows = [f"| `{name}` | {shortly(here)} | {shortly(there)} |" for name, (here, there) in found.settings.items()]
    return "\n".join(["| setting | here | baseline |", "| --- | --- | --- |", *rows])


def _phases(found: Shown) -> str:
    if not found.phases:
        return ""
    starts = ", ".join(f"{one.name} {lasting(one.seconds)}" for one in found.phases if one.seconds)
    last: ShownLaunch | None = found.launches[-1] if found.launches else None
    spent = ", ".join(f"{p} {lasting(last.parts_s[p])}" for p in PARTS if last.parts_s.get(p)) if last else ""
    return "\n\n".join(filter(None, [starts and f"Start: {starts}", spent and f"Time: {spent}"]))


def _command(found: Shown) -> str:
    if not found.command:
        return ""
    log = f"\n\nLog: `{found.launches[-1].log_path}`" if found.launches and found.launches[-1].log_path else ""
    # One long line would push the whole page of the dashboard sideways.
    lines = [f"{name}={shlex.quote(value)}" for name, value in sorted(found.environment.items())]
    lines += [shlex.join(words) for words in by_flag(shlex.split(found.command))]
    return "```sh\n" + " \\\n  ".join(lines) + f"\n```{log}"
