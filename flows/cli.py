"""The command line ``quietlane``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from flows.surroundings import prepare

prepare(on_a_terminal=True)

from flows.confirm_command import add_command as add_confirm  # noqa: E402
from flows.reading_commands import add_commands  # noqa: E402

app = typer.Typer(
    name="quietlane",
    help="Finds, overnight and unattended, the fastest way to serve a model with SGLang on one box of PCIe GPUs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# Exit statuses: 0 done, 1 the search or engine failed, 2 refused before anything started.
FAILED, REFUSED = 1, 2


def _refuse(sentence: str) -> typer.Exit:
    typer.echo(f"quietlane: {sentence}", err=True)
    return typer.Exit(REFUSED)


def _parameters(given: dict[str, Any]) -> Any:
    from flows.parameters import TuneParameters  # noqa: PLC0415 - keeps --help fast

    try:
        return TuneParameters(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = "--" + str(first["loc"][0]).replace("_", "-") if first["loc"] else "parameters"
        raise _refuse(f"{name} {first.get('input')!r}: {first['msg']}; see quietlane tune --help") from None


@app.command(
    epilog="Examples: quietlane tune cpu --trials 6 · quietlane tune nextn --hours 9 "
    "--storage postgresql://tuner@db/studies · quietlane tune nextn --engine rehearsal --trials 60"
)
def tune(
    space: Annotated[str, typer.Argument(help="A shipped space (nextn, nextn-h200, cpu) or the path of a space file.")],
    trials: Annotated[int | None, typer.Option(help="Configurations to try; the space's budget if left out.")] = None,
    hours: Annotated[float | None, typer.Option(help="Hours after which no further launch starts.")] = None,
    storage: Annotated[
        str | None, typer.Option(help="SQLAlchemy URL of the study.", envvar="QUIETLANE_STORAGE")
    ] = None,
    study: Annotated[str | None, typer.Option(help="Name of the study; an existing one is continued.")] = None,
    engine: Annotated[
        str, typer.Option(help="sglang, or rehearsal: a stand-in whose figures are invented.")
    ] = "sglang",
    output: Annotated[Path | None, typer.Option(help="Folder for logs, leaderboard and launch command.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampler.")] = 0,
    prompts: Annotated[Path | None, typer.Option(help="JSONL file, one prompt a line.")] = None,
    port: Annotated[int | None, typer.Option(help="Port of the engine on loopback; a free one if left out.")] = None,
    gpus: Annotated[str | None, typer.Option(help="GPUs to use, as in 0,1,2,3.")] = None,
    preflight: Annotated[bool, typer.Option(help="Let the installed SGLang judge each configuration first.")] = True,
    confirm: Annotated[
        bool, typer.Option(help="Launch the best again at the end, until the verdict is certain.")
    ] = False,
    until: Annotated[str | None, typer.Option(help="End by this time, as in '07:30 Europe/Berlin'.")] = None,
    cross_check: Annotated[bool, typer.Option(help="Run sglang.bench_serving beside the baseline.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as one JSON object.")] = False,
) -> None:
    """Search a space for the fastest configuration, and prove it against the baseline."""
    if gpus is not None and not all(part.strip().isdigit() for part in gpus.split(",")):
        raise _refuse(f"--gpus {gpus!r}: write the GPUs' numbers with commas, as in 0,1,2,3")
    parameters = _parameters(
        {
            "space": space, "trials": trials, "hours": hours, "storage": storage, "study": study, "engine": engine,
            "output": output, "seed": seed, "prompts": prompts, "port": port, "preflight": preflight,
            "confirm": confirm, "until": until, "cross_check": cross_check,
            "gpus": tuple(int(part) for part in gpus.split(",")) if gpus else None,
        }
    )  # fmt: skip
    from flows.opening import check_space  # noqa: PLC0415 - Prefect takes seconds to import
    from flows.refused import Refused  # noqa: PLC0415

    try:
        check_space(parameters)
    except Refused as refused:
        raise _refuse(str(refused)) from None

    from prefect.exceptions import TerminationSignal  # noqa: PLC0415

    from flows.leaving import leave_now, stop_on_sigterm  # noqa: PLC0415
    from flows.tune import tune as tune_flow  # noqa: PLC0415
    from flows.voice import speak_on  # noqa: PLC0415

    speak_on(Console(stderr=as_json))
    stop_on_sigterm()
    try:
        ending = tune_flow(parameters)
    except Refused as refused:
        raise _refuse(str(refused)) from None
    except (KeyboardInterrupt, TerminationSignal):
        typer.echo("quietlane: stopped; the study keeps what was measured and goes on with the same command", err=True)
        leave_now(130)
    if as_json:
        typer.echo(ending.model_dump_json(indent=1))
    if ending.winner is None:
        raise typer.Exit(FAILED)


@app.command()
def watch(
    target: Annotated[str, typer.Argument(help="A log file, the pid of an engine, or its URL.")],
    as_json: Annotated[bool, typer.Option("--json", help="Read the log to its end and print one object.")] = False,
) -> None:
    """Show any SGLang start, ours or not: phase by rank, memory, who is behind, why it died."""
    from engine.watch import WatchError, run  # noqa: PLC0415

    try:
        raise typer.Exit(run(target, as_json, sys.stdout))
    except WatchError as error:
        raise _refuse(str(error)) from None


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
    interpreter: Annotated[str | None, typer.Option(help="The engine's Python, to look at its versions.")] = None,
    model: Annotated[str | None, typer.Option(help="The model's folder, to hold its weights against memory.")] = None,
) -> None:
    """Look at GPUs, PCIe, driver and host: what is wrong, what it costs, what to change."""
    from interconnect.doctor import run  # noqa: PLC0415

    raise typer.Exit(run(as_json, sys.stdout, interpreter, model))


@app.command()
def leaderboard(
    study: Annotated[str, typer.Argument(help="Name of the study.")],
    storage: Annotated[
        str, typer.Option(help="SQLAlchemy URL of the study.", envvar="QUIETLANE_STORAGE")
    ] = "sqlite:///quietlane.db",
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Every trial of a study, the best first."""
    import optuna  # noqa: PLC0415

    from report.leaderboard import as_rows, standings  # noqa: PLC0415
    from storage import StorageError, Store  # noqa: PLC0415

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with Store.open(storage) as store:
            rows = standings(optuna.load_study(study_name=study, storage=store.optuna_storage()))
    except StorageError as error:
        raise _refuse(str(error)) from None
    except KeyError:
        raise _refuse(f"there is no study {study!r} in {storage.split('@')[-1]}: see --storage") from None
    if as_json:
        typer.echo(
            json.dumps(
                [{"trial": row.number, "score": row.score, **row.facts.attributes()["quietlane"]} for row in rows]
            )
        )
        return
    names, lines = as_rows(rows)
    table = Table(
        *names, title=study + (" (REHEARSAL: invented figures)" if any(r.facts.rehearsal for r in rows) else "")
    )
    for line in lines:
        table.add_row(*line)
    Console().print(table)


@app.command()
def probe(
    space: Annotated[str, typer.Argument(help="The space whose engine, model and GPUs are meant.")],
    gpus: Annotated[str | None, typer.Option(help="GPUs to use, as in 0,1,2,3.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Minutes after which no further setting begins.")] = None,
    output: Annotated[Path, typer.Option(help="Folder for probe.json and probe.md.")] = Path("quietlane-runs"),
) -> None:
    """Measure the all-reduce of this machine's GPUs under every communication setting, in seconds each."""
    if gpus is not None and not all(part.strip().isdigit() for part in gpus.split(",")):
        raise _refuse(f"--gpus {gpus!r}: write the GPUs' numbers with commas, as in 0,1,2,3")
    from flows.probe import ProbeParameters  # noqa: PLC0415 - Prefect takes seconds to import
    from flows.probe import probe as probe_flow  # noqa: PLC0415
    from flows.refused import Refused  # noqa: PLC0415
    from flows.voice import speak_on  # noqa: PLC0415

    speak_on(Console())
    chosen = tuple(int(part) for part in gpus.split(",")) if gpus else None
    try:
        probe_flow.fn(ProbeParameters(space=space, gpus=chosen, minutes=minutes, output=output))
    except Refused as refused:
        raise _refuse(str(refused)) from None


spaces = typer.Typer(help="Look at search spaces.", no_args_is_help=True)
app.add_typer(spaces, name="space")


@spaces.command()
def schema() -> None:
    """The JSON Schema of a space file, for editors."""
    from search_spaces.schema import json_schema  # noqa: PLC0415

    typer.echo(json.dumps(json_schema(), indent=1))


@spaces.command()
def check(space: Annotated[str, typer.Argument(help="A shipped space or the path of a space file.")]) -> None:
    """Read a space and say what is wrong with it, or what it holds."""
    from search_spaces import SpaceError, load  # noqa: PLC0415

    try:
        found = load(space)
    except SpaceError as error:
        raise _refuse(str(error)) from None
    typer.echo(
        f"{found.name}: {len(found.parameters)} parameters, {len(found.rules)} rules, {len(found.enqueue)} enqueued "
        f"configurations, {len(found.benchmark.levels)} levels"
    )


add_commands(app)
add_confirm(app)


def main() -> None:
    """Entry point. What nobody foresaw becomes a sentence too; its traceback goes to a file."""
    try:
        app()
    except Exception as error:
        from storage.redaction import redact  # noqa: PLC0415 - brings the whole of SQLAlchemy

        path = Path(tempfile.gettempdir()) / f"quietlane-{os.getpid()}.traceback"
        path.write_text(redact(traceback.format_exc()))
        what = f"{type(error).__name__}: {redact(str(error))[:500]}"
        typer.echo(f"quietlane: {what}; the details are in {path}", err=True)
        sys.exit(FAILED)


if __name__ == "__main__":
    main()
