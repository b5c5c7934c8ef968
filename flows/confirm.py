"""The flow ``confirm``: finalists and baseline launched again in turn until their differences are decided."""

from __future__ import annotations

import dataclasses
import json
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from flows.surroundings import prepare

prepare()

from prefect import flow, task  # noqa: E402
from prefect.artifacts import create_markdown_artifact  # noqa: E402
from prefect.cache_policies import NO_CACHE  # noqa: E402
from prefect.context import FlowRunContext  # noqa: E402
from pydantic import BaseModel, ConfigDict, Field, field_validator  # noqa: E402

from engine.failure import EngineFailed  # noqa: E402
from flows.budget import Budget, deadline  # noqa: E402
from flows.ending import script_of  # noqa: E402
from flows.finalists import Finalist, choose  # noqa: E402
from flows.launch_history import times_of  # noqa: E402
from flows.limits import missed  # noqa: E402
from flows.measured import Measured, launch_and_measure  # noqa: E402
from flows.opening import Search, open_search  # noqa: E402
from flows.parameters import DEFAULT_STORAGE, TuneParameters  # noqa: E402
from flows.resuming import recall  # noqa: E402
from flows.voice import say  # noqa: E402
from report.confirmation import as_dict, as_markdown  # noqa: E402
from report.repeated_looks import FIRST_LOOK, MOST_LAUNCHES  # noqa: E402
from report.verdict import Judge, Repeats, Verdict  # noqa: E402


class ConfirmParameters(BaseModel):
    """One verdict on one study."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    space: str = Field("nextn", description="The space of the study: a shipped one or the path of a space file.")
    study: str | None = Field(None, max_length=200, description="Name of the study; the space's name if empty.")
    storage: str = Field(
        DEFAULT_STORAGE, min_length=1, description="SQLAlchemy URL of the study (SQLite or PostgreSQL)."
    )
    trials: tuple[int, ...] = Field((), description="Trials to confirm; the best and those as good as it if empty.")
    finalists: int = Field(4, ge=1, le=20, description="Most configurations chosen by their score.")
    each_algorithm: bool = Field(True, description="Launch the best of each speculative algorithm too.")
    launches: int = Field(
        MOST_LAUNCHES, ge=FIRST_LOOK, le=50, description="Most launches of each configuration; 3 to begin with."
    )
    hours: float | None = Field(None, gt=0, le=24 * 14, description="Hours in which every launch must have ended.")
    until: str | None = Field(None, description="The same as a time, such as 07:30 Europe/Berlin.")
    engine: Literal["sglang", "rehearsal"] = Field("sglang", description="rehearsal is a stand-in without GPUs.")
    output: Path = Field(Path("quietlane-runs"), description="Folder for logs and the verdict.")
    seed: int = Field(0, ge=0, lt=2**32, description="Seed of the order of launches.")
    prompts: Path | None = Field(None, description="JSONL file, one prompt a line; as in the search if empty.")
    port: int | None = Field(None, ge=1024, le=65535, description="Port of the engine on loopback.")
    gpus: tuple[int, ...] | None = Field(None, description="GPUs to use; as many as the space needs if empty.")
    preflight: bool = Field(True, description="Let the installed SGLang resolve each configuration first.")
    start_timeout_s: float = Field(1800, ge=5, le=4 * 3600, description="Longest start of an engine, in seconds.")

    @field_validator("until")
    @classmethod
    def _readable(cls, until: str | None) -> str | None:
        if until is not None:
            deadline(until)
        return until

    def as_search(self) -> TuneParameters:
        """What opens the study, the machine and the store."""
        shared = TuneParameters.model_fields.keys() & type(self).model_fields.keys() - {"trials", "hours", "until"}
        return TuneParameters(**{name: getattr(self, name) for name in shared})

    def ends(self, now: float) -> float | None:
        """Unix seconds at which every launch must have ended, the earlier of both limits. Raises ValueError."""
        limits = [now + self.hours * 3600] if self.hours else []
        return min([*limits, deadline(self.until).timestamp()] if self.until else limits, default=None)


class Confirmed(BaseModel):
    """Result of the flow."""

    study: str
    storage: str
    rehearsal: bool
    headline: str
    winner: str | None = None
    winner_trial: int | None = None
    winner_label: str | None = None
    tied: list[str] = []
    against_baseline: dict[str, str] = {}
    speculation: list[str] = []
    launches: int = 0
    stopped_because: str | None = None
    report: Path | None = None
    launch_script: Path | None = None


@dataclasses.dataclass
class _Contender:
    """A finalist and what its launches gave."""

    finalist: Finalist
    launches: list[Measured] = dataclasses.field(default_factory=list)
    out: str | None = None

    def repeats(self) -> Repeats:
        """As the verdict sees it."""
        one = self.finalist
        traffic = [level.pcie_bytes_per_token for launch in self.launches for level in launch.measurements]
        counted = [value for value in traffic if value is not None]
        return Repeats(
            one.name,
            one.label,
            tuple(launch.throughput for launch in self.launches),
            one.is_baseline,
            one.algorithm,
            sum(counted) / len(counted) if counted and len(counted) == len(traffic) else None,
            self.out,
        )


def _as_run(name: str, work: Callable[[], Measured]) -> Measured:
    """The launch as a run of its own in Prefect."""
    if FlowRunContext.get() is None:
        return work()
    label = name.replace("{", "(").replace("}", ")")[:250]
    in_prefect = task(name="launch", task_run_name=label, cache_policy=NO_CACHE, persist_result=False)
    return in_prefect(work)()


def _launch(search: Search, contender: _Contender) -> str | None:
    """Launch one finalist once more; the reason if the machine, not the finalist, is at fault."""
    finalist = contender.finalist
    work = partial(
        launch_and_measure,
        search,
        finalist.configuration,
        purpose="confirm",
        trial_number=finalist.number,
        resolved=finalist.resolved,
        stop_early=False,
    )
    try:
        measured = _as_run(f"{finalist.name}, launch {len(contender.launches) + 1}", work)
    except EngineFailed as error:
        failure = error.failure
        if failure.blame == "environment" or finalist.is_baseline:
            return f"{finalist.name} failed: {failure.sentence()}; {failure.remedy or 'look at the log of the launch'}"
        contender.out = f"it failed when launched again: {failure.sentence()}"
        say(f"  {finalist.name} is out: {contender.out}", warning=True)
        return None
    contender.launches.append(measured)
    limit = missed(search.space.benchmark.limits, measured.measurements, measured.phases)
    if limit and not contender.out:
        contender.out = f"it misses a limit: {limit}"
        say(f"  {finalist.name} cannot win: {contender.out}", warning=True)
    say("  tok/s " + ", ".join(f"{level} {value:,.1f}" for level, value in measured.throughput.items()))
    if search.broken is not None:
        return f"{search.broken.sentence()}; {search.broken.remedy}"
    return None


def _rounds(search: Search, contenders: Sequence[_Contender], judge: Judge, budget: Budget, seed: int) -> str | None:
    """Round after round in random order until all is decided; the reason if it ended before."""
    order, times, done = random.Random(seed), times_of(search), 0
    while True:
        due = {one.name for one in judge.due([contender.repeats() for contender in contenders])}
        if not due:
            return None
        a_round = [contender for contender in contenders if contender.finalist.name in due]
        order.shuffle(a_round)
        for contender in a_round:
            began, identity = time.time(), contender.finalist.configuration.identity()
            spent = budget.spent(done, began, times, identity)
            if spent:
                return f"the budget ended before everything was decided: {spent}"
            say(f"[{len(contender.launches) + 1}/{judge.most}] {contender.finalist.name} {contender.finalist.label}")
            broken = _launch(search, contender)
            if broken:
                return broken
            times.add(identity, time.time() - began)
            done += 1


def confirming(parameters: TuneParameters) -> ConfirmParameters:
    """What confirms a search that was started so."""
    shared = TuneParameters.model_fields.keys() & ConfirmParameters.model_fields.keys() - {"trials", "hours", "until"}
    return ConfirmParameters(**{name: getattr(parameters, name) for name in shared})


def confirm_search(search: Search, parameters: ConfirmParameters, ends: float | None = None) -> Confirmed:
    """The verdict on an open search; every launch has ended by ``ends`` (Unix seconds). Raises Refused."""
    # What bench_serving says beside the trials was said already; here every minute belongs to repeats.
    search.parameters = search.parameters.model_copy(update={"cross_check": False})
    finalists = choose(search, parameters.finalists, parameters.trials, each_algorithm=parameters.each_algorithm)
    say(f"Confirming: {', '.join(f'{one.name} ({one.why})' for one in finalists)}.")
    contenders = [_Contender(finalist) for finalist in finalists]
    judge = Judge(len(finalists), search.board.weights, parameters.launches)
    budget = Budget(began=time.time(), ends=ends)
    stopped_because = _rounds(search, contenders, judge, budget, parameters.seed)
    if stopped_because:
        say(f"Confirming stopped: {stopped_because}", warning=True)
    return _conclude(search, contenders, judge, stopped_because)


def _conclude(search: Search, contenders: Sequence[_Contender], judge: Judge, stopped_because: str | None) -> Confirmed:
    everyone = [contender.repeats() for contender in contenders]
    verdict = judge.judge(everyone)
    chosen = next((one for one in contenders if verdict.winner and one.finalist.name == verdict.winner.name), None)
    confirmed = Confirmed(
        study=search.study_name,
        storage=search.store.url,
        rehearsal=search.rehearsal,
        headline=verdict.headline,
        winner=chosen.finalist.name if chosen else None,
        winner_trial=chosen.finalist.number if chosen else None,
        winner_label=chosen.finalist.label if chosen else None,
        tied=[one.name for one in verdict.tied],
        against_baseline={name: one.sentence() for name, one in verdict.against_baseline.items()},
        speculation=list(verdict.speculation),
        launches=sum(len(contender.launches) for contender in contenders),
        stopped_because=stopped_because,
        report=search.folder / "confirm.md",
    )
    if chosen:
        confirmed.launch_script = _write_script(search, chosen.finalist, verdict)
    _write_report(search, confirmed, judge, everyone, verdict)
    say(verdict.headline)
    for line in verdict.speculation:
        say(f"  {line}")
    say(f"Verdict: {confirmed.report}")
    return confirmed


def _write_script(search: Search, winner: Finalist, verdict: Verdict) -> Path:
    path = search.folder / "winner.sh"
    title = f"the winner that quietlane confirmed for {search.space.model.path}"
    what = f"{winner.name} {winner.label}".strip()
    path.write_text(script_of(search, winner.configuration, what, [verdict.headline], title))
    path.chmod(0o755)
    return path


def _write_report(
    search: Search, confirmed: Confirmed, judge: Judge, everyone: Sequence[Repeats], verdict: Verdict
) -> None:
    assert confirmed.report is not None, "it was named just before"
    text = as_markdown(
        search.study_name,
        judge,
        everyone,
        verdict,
        stopped_because=confirmed.stopped_because,
        rehearsal=search.rehearsal,
    )
    confirmed.report.write_text(text)
    figures = {**confirmed.model_dump(mode="json"), **as_dict(judge, everyone, verdict)}
    (search.folder / "confirm.json").write_text(json.dumps(figures, indent=1) + "\n")
    search.store.record_artifact(confirmed.report, "confirm", study=search.study_name)
    search.study.set_user_attr("confirmed", verdict.headline)
    if FlowRunContext.get() is not None:
        create_markdown_artifact(text, key="confirm", description=f"verdict on {search.study_name}")


@flow(name="confirm", flow_run_name="confirm-{parameters.space}", validate_parameters=True, persist_result=False)
def confirm(parameters: ConfirmParameters) -> Confirmed:
    """Launch the finalists of a study and the baseline again and say which differences are real."""
    ends = parameters.ends(time.time())
    with open_search(parameters.as_search()) as search:
        recall(search)
        return confirm_search(search, parameters, ends)
