"""The commands that only read a study: report, status, show, compare, explain, export."""

from __future__ import annotations

import dataclasses
import json
import math
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import optuna

    from report.study_record import StudyRecord
    from storage import Store

_REFUSED = 2

Storage = Annotated[str, typer.Option(help="SQLAlchemy URL of the study.", envvar="QUIETLANE_STORAGE")]
Study = Annotated[str | None, typer.Option(help="Name of the study; may be left out if the storage holds one only.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Number = Annotated[int, typer.Argument(help="Number of the trial.", min=0)]
_DEFAULT = "sqlite:///quietlane.db"


def _refuse(sentence: str) -> typer.Exit:
    typer.echo(f"quietlane: {sentence}", err=True)
    return typer.Exit(_REFUSED)


@contextmanager
def _opened(storage: str, study: str | None) -> Iterator[tuple[optuna.Study, Store]]:
    """A study and its store; what is not there ends the command with one sentence and exit status 2."""
    import optuna  # noqa: PLC0415 - keeps --help fast

    from report.study_record import ReportError  # noqa: PLC0415
    from storage import StorageError, Store  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if storage.startswith("sqlite:///") and not Path(storage.removeprefix("sqlite:///").split("?")[0]).exists():
        raise _refuse(f"there is no database {storage}: name the study's with --storage or QUIETLANE_STORAGE")
    try:
        with Store.open(storage) as store:
            yield optuna.load_study(study_name=_chosen(store, study), storage=store.optuna_storage()), store
    except (StorageError, ReportError) as error:
        raise _refuse(str(error)) from None


def _chosen(store: Store, study: str | None) -> str:
    names = [one.study_name for one in store.optuna_storage().get_all_studies()]
    if study is None and len(names) == 1:
        return names[0]
    if study in names:
        assert study is not None, "it is one of the names"
        return study
    known = f"it holds {', '.join(sorted(names)[:8])}" if names else "it holds none"
    wanted = "several studies" if study is None else f"no study {study!r}"
    raise _refuse(f"{store.url} has {wanted} ({known}): name one" + (" with --study" if study is None else ""))


@contextmanager
def _read(storage: str, study: str | None) -> Iterator[tuple[StudyRecord, Store]]:
    from report.study_record import read_study  # noqa: PLC0415

    with _opened(storage, study) as (found, store):
        yield read_study(found, store), store


def _print(found: Any, text: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_plain(dataclasses.asdict(found)), indent=1, default=str))
    else:
        typer.echo(text, nl=False)


def _plain(value: Any) -> Any:
    """Values that JSON has: what is not a finite number becomes null."""
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def report(
    study: Annotated[
        str | None, typer.Argument(help="Name of the study; may be left out if there is one only.")
    ] = None,
    storage: Storage = _DEFAULT,
    output: Annotated[Path | None, typer.Option(help="Page to write, or its folder; STUDY.html if left out.")] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Json = False,
) -> None:
    """Write the morning report: one HTML page that loads nothing, and its Markdown twin."""
    from report.written import write_report  # noqa: PLC0415

    with _opened(storage, study) as (found, store):
        page = write_report(found, store, output or Path(f"{found.study_name.replace('/', '-')}.html"))
    twin = page.with_suffix(".md")
    if as_json:
        typer.echo(json.dumps({"report": str(page), "markdown": str(twin)}))
    else:
        typer.echo(f"Report: {page}\nMarkdown: {twin}")
    if open_it and not webbrowser.open(page.absolute().as_uri()):
        typer.echo(f"quietlane: no browser could be opened here: open {page} yourself", err=True)


def status(
    study: Annotated[
        str | None, typer.Argument(help="Name of the study; may be left out if there is one only.")
    ] = None,
    storage: Storage = _DEFAULT,
    as_json: Json = False,
) -> None:
    """Where a study stands: what runs, what is best, what failed."""
    from report.status import as_text, status  # noqa: PLC0415

    with _read(storage, study) as (record, _):
        found = status(record)
        _print(found, as_text(found), as_json)


def show(trial: Number, study: Study = None, storage: Storage = _DEFAULT, as_json: Json = False) -> None:
    """Everything about one trial: settings, start, levels, launches, command."""
    from report.show import as_text, show  # noqa: PLC0415

    with _read(storage, study) as (record, store):
        kept = [one.path for launch in record.launches_of(trial) for one in store.artifacts(launch_id=launch.id)]
        found = show(record, trial, [str(path) for path in kept])
        _print(found, as_text(found), as_json)


def compare(
    first: Number, second: Number, study: Study = None, storage: Storage = _DEFAULT, as_json: Json = False
) -> None:
    """What differs between two trials: settings, what the engine made of them, start, levels with intervals."""
    from report.compare_trials import as_text, compare_trials  # noqa: PLC0415

    with _read(storage, study) as (record, store):
        found = compare_trials(record, store, first, second)
        _print(found, as_text(found), as_json)


def explain(trial: Number, study: Study = None, storage: Storage = _DEFAULT, as_json: Json = False) -> None:
    """Why a trial failed, lost or won."""
    from report.explain import as_text, explain  # noqa: PLC0415

    with _read(storage, study) as (record, store):
        found = explain(record, store, trial)
        _print(found, as_text(found), as_json)


def export(
    trial: Annotated[int | None, typer.Argument(help="Number of the trial; the winner if left out.", min=0)] = None,
    form: Annotated[str, typer.Option("--as", help="sh, docker, compose, systemd or k8s.")] = "sh",
    study: Study = None,
    storage: Storage = _DEFAULT,
    output: Annotated[Path | None, typer.Option(help="File to write; printed if left out.")] = None,
    as_json: Json = False,
) -> None:
    """A trial as a launch that works, with the versions it was measured on."""
    from report.export import export, launch_of  # noqa: PLC0415
    from report.study_record import ReportError  # noqa: PLC0415

    with _read(storage, study) as (record, _):
        if trial is None and record.winner is None:
            raise ReportError(f"study {record.name!r} has no winner yet: name the trial to export")
        number = trial if trial is not None else record.winner.number  # type: ignore[union-attr]
        text = export(record, number, form)
        launch = launch_of(record, number)
    if output is not None:
        try:
            output.write_text(text)
            if form in ("sh", "docker"):
                output.chmod(0o755)
        except OSError as error:
            raise _refuse(f"{output} cannot be written ({error.strerror}): choose another file") from None
    if as_json:
        typer.echo(json.dumps({"as": form, "text": text, **_plain(dataclasses.asdict(launch))}, indent=1))
    elif output is None:
        typer.echo(text, nl=False)


_EXAMPLES: dict[Callable[..., None], str] = {
    report: "Examples: quietlane report nextn · quietlane report nextn --output /srv/www/ --open",
    status: "Examples: quietlane status · quietlane status nextn --json",
    show: "Examples: quietlane show 12 · quietlane show 12 --study nextn --json",
    compare: "Examples: quietlane compare 0 12 · quietlane compare 7 12 --study nextn",
    explain: "Examples: quietlane explain 12 · quietlane explain 12 --study nextn",
    export: "Examples: quietlane export 12 --as docker · quietlane export --as k8s --output engine.yaml",
}


def add_commands(app: typer.Typer) -> None:
    """Add every command of this file."""
    for command, examples in _EXAMPLES.items():
        app.command(epilog=examples)(command)
