"""What a person wakes up to: leaderboard, winner, how it compares, and the launch command."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
from prefect.artifacts import create_markdown_artifact
from prefect.context import FlowRunContext
from pydantic import BaseModel

from engine.configuration import Configuration
from flows.opening import Search
from flows.voice import say
from report import write_report
from report.comparison import LevelComparison, compare
from report.dashboard_notes import save_notes
from report.launch_script import launch_script
from report.leaderboard import Standing, as_markdown, standings
from report.study_record import ReportError
from report.trial_facts import TrialFacts, feasible
from storage import StorageError


class Ending(BaseModel):
    """Result of the flow."""

    study: str
    storage: str
    rehearsal: bool
    trials: int
    winner: int | None = None
    winner_label: str | None = None
    score: float | None = None
    baseline: int | None = None
    against_baseline: list[str] = []
    leaderboard: Path | None = None
    report: Path | None = None
    launch_script: Path | None = None
    stopped_because: str | None = None
    earlier_results: list[str] = []
    verdict: str | None = None
    """What confirming said, where it was asked for."""


def probable_best(search: Search, rows: list[Standing]) -> Standing | None:
    """What is probably best, as the sampler sees it; among those measured to the end."""
    whole = [row for row in rows if row.score is not None and not row.facts.stopped_early]
    probable = getattr(search.study.sampler, "incumbent", None)
    best: optuna.trial.FrozenTrial | None = probable(search.study) if probable else None
    if best is not None and feasible(best):
        facts = TrialFacts.of(best)
        number = facts.reused_from if facts and facts.reused_from is not None else best.number
        for row in whole:
            if row.number == number:
                return row
    return whole[0] if whole else None


def measured_baseline(search: Search, rows: list[Standing]) -> Standing | None:
    """The baseline's newest trial, of this environment if there is one."""
    measured = [row for row in rows if row.facts.is_baseline and row.score is not None]
    here = [row for row in measured if row.facts.environment_id == search.environment_id]
    return (here or measured or [None])[-1]  # type: ignore[list-item]


def _script(search: Search, winner: Standing, lines: list[LevelComparison]) -> str:
    launches = search.store.launches(search.study_name)
    launch = next(one for one in launches if one.id == winner.facts.launch_id)
    title = f"the fastest configuration that quietlane found for {search.space.model.path}"
    what = f"trial {winner.number} ({winner.facts.label})"
    return script_of(search, launch.configuration, what, [line.sentence() for line in lines], title)


def script_of(search: Search, configuration: Configuration, what: str, lines: list[str], title: str) -> str:
    """The launch script of a configuration of this search; ``lines`` say how it was measured."""
    environment = {**search.program.environment, **configuration.environment}
    versions = search.store.environment(search.environment_id).details.get("versions", {})
    facts = [
        f"study {search.study_name}, {what}",
        "measured with " + (", ".join(f"{name} {version}" for name, version in versions.items()) or "unknown versions"),
        *lines,
    ]
    command = [*search.program.command, "--host", "127.0.0.1", "--port", "30000", *configuration.arguments()]
    return launch_script(command, environment, title=title, facts=facts, rehearsal=search.rehearsal)


def conclude(search: Search, stopped_because: str | None) -> Ending:
    """Write the leaderboard and the launch script, say the outcome, and return it."""
    rows = standings(search.study)
    ending = Ending(
        study=search.study_name,
        storage=search.store.url,
        rehearsal=search.rehearsal,
        trials=len(rows),
        stopped_because=stopped_because,
    )
    ending.leaderboard = search.folder / "leaderboard.md"
    winner, baseline = probable_best(search, rows), measured_baseline(search, rows)
    ending.earlier_results = list(search.earlier.sentences)
    text = f"# {search.study_name}\n\n"
    if winner and baseline:
        lines = compare(baseline.facts, winner.facts)
        ending.winner, ending.winner_label, ending.score = winner.number, winner.facts.label, winner.score
        ending.baseline = baseline.number
        ending.against_baseline = [line.sentence() for line in lines]
        ending.launch_script = search.folder / "winner.sh"
        ending.launch_script.write_text(_script(search, winner, lines))
        ending.launch_script.chmod(0o755)
        headline = (
            "The baseline is the fastest configuration found."
            if winner.number == baseline.number
            else f"Trial {winner.number} ({winner.facts.label}) scores {winner.score:.3f} of the baseline."
        )
        text += "\n".join([headline, "", *(f"- {sentence}" for sentence in ending.against_baseline), "", ""])
        say(headline)
        for sentence in ending.against_baseline:
            say(f"  {sentence}")
        say(f"Launch command: {ending.launch_script}")
    else:
        say("No configuration was measured; see the leaderboard for the reasons.", warning=True)
    if stopped_because:
        text += f"The search stopped: {stopped_because}\n\n"
    if ending.earlier_results:
        text += "\n".join([*(f"- {sentence}" for sentence in ending.earlier_results), "", ""])
    text += as_markdown(rows)
    ending.leaderboard.write_text(text)
    say(f"Leaderboard: {ending.leaderboard}")
    _write_report(search, ending)
    write_json(search, ending)
    if FlowRunContext.get() is not None:
        create_markdown_artifact(text, key="leaderboard", description=f"leaderboard of {search.study_name}")
    return ending


def _write_report(search: Search, ending: Ending) -> None:
    """The morning report, and the notes that Optuna Dashboard shows; a study without them is still a study."""
    try:
        ending.report = write_report(search.study, search.store, search.folder / "report.html")
        save_notes(search.study, search.store)
    except (ReportError, StorageError) as error:
        say(f"The report could not be written: {error}", warning=True)
    else:
        say(f"Report: {ending.report}")


def write_json(search: Search, ending: Ending) -> None:
    """The outcome beside the leaderboard, for programs."""
    (search.folder / "ending.json").write_text(json.dumps(ending.model_dump(mode="json"), indent=1) + "\n")
