"""``quietlane confirm``: the command line of the flow that settles who is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console

from flows.parameters import DEFAULT_STORAGE

# As for every command: 1 the work failed, 2 refused before anything started.
_FAILED, _REFUSED = 1, 2


def _refuse(sentence: str) -> typer.Exit:
    typer.echo(f"quietlane: {sentence}", err=True)
    return typer.Exit(_REFUSED)


def _studies_space(study: str, storage: str) -> str | None:
    """The space file that a study was searched with, ``None`` where there is no such study or it does not say."""
    import optuna  # noqa: PLC0415 - keeps --help fast

    from storage import StorageError, Store  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with Store.open(storage) as store:
            attributes = optuna.load_study(study_name=study, storage=store.optuna_storage()).user_attrs
    except KeyError:
        return None
    except StorageError as error:
        raise _refuse(str(error)) from None
    return attributes.get("space_file") or attributes.get("space")


def _parameters(given: dict[str, Any]) -> Any:
    from flows.confirm import ConfirmParameters  # noqa: PLC0415 - Prefect takes seconds to import

    try:
        return ConfirmParameters(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else "parameters"
        raise _refuse(f"{name} {first.get('input')!r}: {first['msg']}; see quietlane confirm --help") from None


def _confirm(
    target: Annotated[str, typer.Argument(help="Name of the study, or of the space it searched.")],
    trial: Annotated[list[int] | None, typer.Option(help="Trial to confirm; repeat it for several.")] = None,
    finalists: Annotated[int | None, typer.Option(help="Most configurations chosen by their score.")] = None,
    launches: Annotated[int | None, typer.Option(help="Most launches of each; at least 3.")] = None,
    hours: Annotated[float | None, typer.Option(help="Hours in which every launch must have ended.")] = None,
    until: Annotated[str | None, typer.Option(help="The same as a time, as in '07:30 Europe/Berlin'.")] = None,
    storage: Annotated[
        str, typer.Option(help="SQLAlchemy URL of the study.", envvar="QUIETLANE_STORAGE")
    ] = DEFAULT_STORAGE,
    space: Annotated[str | None, typer.Option(help="The study's space, where the study does not tell.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="sglang, or rehearsal: a stand-in whose figures are invented.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for logs and the verdict.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the order of launches.")] = None,
    prompts: Annotated[Path | None, typer.Option(help="JSONL file, one prompt a line, as in the search.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the engine on loopback.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs to use, as in 0,1,2,3.")] = None,
    preflight: Annotated[bool, typer.Option(help="Let the installed SGLang judge each configuration first.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
) -> None:
    """Launch the best of a study and the baseline again, in turn, until it is certain which are faster."""
    if gpus is not None and not all(part.strip().isdigit() for part in gpus.split(",")):
        raise _refuse(f"--gpus {gpus!r}: write the GPUs' numbers with commas, as in 0,1,2,3")
    searched = _studies_space(target, storage) if space is None else space
    rehearsed = engine is None and searched is not None and target.endswith("-rehearsal")
    parameters = _parameters(
        {
            "space": searched or target, "study": target if searched else None, "storage": storage,
            "trials": tuple(trial) if trial else None, "finalists": finalists, "launches": launches, "hours": hours,
            "until": until, "engine": "rehearsal" if rehearsed else engine, "output": output, "seed": seed,
            "prompts": prompts, "port": port, "preflight": preflight,
            "gpus": tuple(int(part) for part in gpus.split(",")) if gpus else None,
        }
    )  # fmt: skip
    from flows.opening import check_space, study_name  # noqa: PLC0415
    from flows.refused import Refused  # noqa: PLC0415

    try:
        name = study_name(check_space(parameters.as_search()), parameters.as_search())
    except Refused as refused:
        raise _refuse(str(refused)) from None
    if _studies_space(name, storage) is None:
        raise _refuse(
            f"there is no study {name!r} in {storage.split('@')[-1]}: run quietlane tune first, or see --storage"
        )
    _run(parameters, as_json)


def _run(parameters: Any, as_json: bool) -> None:
    from prefect.exceptions import TerminationSignal  # noqa: PLC0415

    from flows.confirm import confirm  # noqa: PLC0415
    from flows.leaving import leave_now, stop_on_sigterm  # noqa: PLC0415
    from flows.refused import Refused  # noqa: PLC0415
    from flows.voice import speak_on  # noqa: PLC0415

    speak_on(Console(stderr=as_json))
    stop_on_sigterm()
    try:
        confirmed = confirm(parameters)
    except Refused as refused:
        raise _refuse(str(refused)) from None
    except (KeyboardInterrupt, TerminationSignal):
        typer.echo("quietlane: stopped; the launches so far are recorded, and confirming begins anew", err=True)
        leave_now(130)
    if as_json:
        typer.echo(confirmed.model_dump_json(indent=1))
    if confirmed.winner is None:
        raise typer.Exit(_FAILED)


def add_command(app: typer.Typer) -> None:
    """Give a command line the command ``confirm``."""
    app.command(
        name="confirm",
        epilog="Examples: quietlane confirm nextn --hours 2 · quietlane confirm nextn --trial 12 --trial 31 "
        "--until '07:30 Europe/Berlin'",
    )(_confirm)
