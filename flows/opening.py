"""Opening a search: everything that can be refused is refused here, in one sentence, before anything starts."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import optuna

import benchmark.prompts as prompts_module
from benchmark.answers import Answers
from benchmark.plan import Plan
from benchmark.prompts import Prompt, PromptsError
from engine.failure import Failure
from engine.gpus import foreign_processes, visible_gpus
from engine.locks import GpuLocks, HeldElsewhere
from engine.ports import in_use
from engine.preflight import Preflight
from engine.program import Program
from engine.progress import StartHistory
from engine.reap import reap_leftovers
from flows.measuring_plan import level_weights, measuring_plan
from flows.parameters import TuneParameters
from flows.priors import Earlier, earlier_results
from flows.refused import Refused
from flows.score_board import ScoreBoard
from flows.voice import say
from interconnect.environment import describe
from interconnect.traffic import PcieObserver
from search_spaces import Space, SpaceError, load
from search_spaces.checks import refusals
from storage import StorageError, Store
from storage.optuna_study import claim, sweep_ghosts

# A rehearsed engine starts in milliseconds and serves four times faster than life unless its user says otherwise.
_REHEARSAL = {"REHEARSAL_SPEED": "0", "REHEARSAL_TIME_SCALE": "4"}


@dataclass
class Search:
    """Everything that one search holds open, and what it has learnt so far."""

    parameters: TuneParameters
    space: Space
    plan: Plan
    prompts: tuple[Prompt, ...]
    program: Program
    store: Store
    study: optuna.Study
    preflight: Preflight | None
    gpus: tuple[int, ...]
    environment_id: int
    folder: Path
    board: ScoreBoard
    history: StartHistory
    locks: GpuLocks
    earlier: Earlier = field(default_factory=Earlier)
    """What other studies and other environments found."""
    traffic: PcieObserver | None = None
    """Counts the bytes over PCIe of each level, where there are GPUs."""
    seen: dict[str, int] = field(default_factory=dict)
    reference: Answers | None = None
    """The baseline's greedy answers, once it has given them."""
    broken: Failure | None = None
    """What a teardown found wrong with the machine: no further launch."""
    unexplained: list[tuple[str, Failure]] = field(default_factory=list)
    """Failures since the last launch that worked that nobody can explain, each with its configuration's identity."""

    @property
    def rehearsal(self) -> bool:
        """Whether the engine is the stand-in."""
        return self.program.rehearsal

    @property
    def reference_path(self) -> Path:
        """Where the baseline's answers in this environment are kept."""
        return self.folder / f"reference-answers-{self.environment_id}.json"

    @property
    def study_name(self) -> str:
        """Name of the study."""
        return self.study.study_name

    def claim(self, trial: optuna.Trial) -> None:
        """Sign a trial, so that a later search can tell a trial in hand from one that its process left behind."""
        claim(trial)


def engine_program(space: Space, parameters: TuneParameters) -> Program:
    """What is launched: the space's engine, or the rehearsal engine in its place."""
    if parameters.engine == "rehearsal":
        wanted = {name: os.environ.get(name, value) for name, value in _REHEARSAL.items()}
        return Program((sys.executable, "-m", "rehearsal.launch_server"), wanted, rehearsal=True)
    return Program(space.engine.argv, space.engine.base_environment)


def study_name(space: Space, parameters: TuneParameters) -> str:
    """The name asked for, else the space's; a rehearsal never shares a study with measurements."""
    name = parameters.study or space.name
    return f"{name}-rehearsal" if parameters.engine == "rehearsal" and not name.endswith("-rehearsal") else name


def _chosen_gpus(space: Space, parameters: TuneParameters) -> tuple[int, ...]:
    if parameters.engine == "rehearsal" or not space.engine.gpus:
        return ()
    there = {gpu.index for gpu in visible_gpus()}
    chosen = parameters.gpus if parameters.gpus is not None else tuple(sorted(there))[: space.engine.gpus]
    missing = sorted(set(chosen) - there)
    if missing or len(chosen) < space.engine.gpus:
        raise Refused(
            f"{space.name} needs {space.engine.gpus} GPUs and {len(there)} are visible here"
            + (f" (not GPU {', '.join(map(str, missing))})" if missing else "")
            + ": choose a space for this machine, or try it with --engine rehearsal"
        )
    for process in foreign_processes(chosen):
        raise Refused(
            f"GPU {process.gpu} is in use by pid {process.pid} ({process.user}: {process.command}): "
            "stop that process, or choose other GPUs with --gpus"
        )
    return chosen


def _writable_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".write-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Refused(
            f"the output folder {folder} cannot be written ({error.strerror}): choose another with --output"
        ) from error
    return folder


def _preflight(space: Space, program: Program, stack: ExitStack) -> Preflight:
    """The installed engine's own word on the baseline, and on every flag that the space may set."""
    preflight = stack.enter_context(Preflight(program))
    answer = preflight.check(space.baseline())
    if not preflight.available:
        say(
            f"No preflight: {preflight.unavailable_because}. Configurations are judged by launching them.", warning=True
        )
        return preflight
    if not answer.accepted:
        raise Refused(
            f"the installed engine rejects the baseline of {space.name}: {answer.rejection}; mend the space file"
        )
    known = preflight.known_flags()
    unknown = sorted(
        target
        for parameter in (*space.parameters,)
        for target in parameter.targets()
        if target.startswith("--") and known and target not in known
    )
    if unknown:
        raise Refused(
            f"the installed engine does not know {', '.join(unknown)}: take the flag out of {space.name}, "
            f"or name an engine that has it (written for SGLang {space.engine.version or 'any'})"
        )
    for warning in answer.warnings:
        say(warning, warning=True)
    return preflight


def _sampler(parameters: TuneParameters, environment_id: int, earlier: Earlier) -> optuna.samplers.BaseSampler:
    from flows.environment_sampler import EnvironmentSampler  # noqa: PLC0415 - brings scipy, which is slow to import

    return EnvironmentSampler(parameters.seed, environment_id=environment_id, prior_trials=earlier.trials)


def _study(
    store: Store, space: Space, parameters: TuneParameters, environment_id: int, earlier: Earlier
) -> optuna.Study:
    study = optuna.create_study(
        study_name=study_name(space, parameters),
        storage=store.optuna_storage(),
        sampler=_sampler(parameters, environment_id, earlier),
        direction="maximize",
        load_if_exists=True,
    )
    for ghost in sweep_ghosts(study):
        say(f"Trial {ghost.number} was left running by a process that is gone: it now counts as failed.", warning=True)
    study.set_metric_names(["score (1.0 is the baseline)"])
    if parameters.engine == "rehearsal":
        study.set_user_attr("REHEARSAL", "found with the stand-in engine: every figure is invented")
    study.set_user_attr("space", space.name)
    study.set_user_attr("model", space.model.path)
    study.set_user_attr("space_file", parameters.space)
    study.set_user_attr("earlier results", list(earlier.sentences))
    return study


def check_space(parameters: TuneParameters) -> Space:
    """The space, once it and everything it names are in order; raises Refused. Costs no server and no GPU."""
    try:
        space = load(parameters.space)
        prompts_module.load(parameters.prompts or space.benchmark.prompts)
    except (SpaceError, PromptsError) as error:
        raise Refused(str(error)) from error
    if parameters.engine != "rehearsal":
        for sentence in refusals(space):
            raise Refused(sentence)
    if parameters.port is not None and (holder := in_use(parameters.port)):
        raise Refused(f"port {parameters.port} is in use by {holder}: choose another with --port, or leave it out")
    return space


def _traffic(gpus: tuple[int, ...], stack: ExitStack) -> PcieObserver | None:
    """The observer of the PCIe counters, which has seen them idle; nothing without GPUs."""
    if not gpus:
        return None
    observer = stack.enter_context(PcieObserver(gpus))
    observer.measure_idle()
    return observer


@contextmanager
def open_search(parameters: TuneParameters) -> Iterator[Search]:
    """Check everything, open everything, and close it again however the search ends.

    Raises Refused with one sentence where the search must not start.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    with ExitStack() as stack:
        try:
            space = check_space(parameters)
            rehearsal = parameters.engine == "rehearsal"
            plan = measuring_plan(space, parameters)
            prompts = prompts_module.load(parameters.prompts or space.benchmark.prompts)
            folder = _writable_folder(parameters.output / study_name(space, parameters))
            gpus = _chosen_gpus(space, parameters)
            locks = GpuLocks(gpus)
            if not rehearsal:
                stack.enter_context(locks)
            for leftover in reap_leftovers():
                say(f"Ended what an earlier launch had left behind: {leftover.description}", warning=True)
            program = engine_program(space, parameters)
            store = stack.enter_context(Store.open(parameters.storage))
            preflight = _preflight(space, program, stack) if parameters.preflight and not rehearsal else None
            environment_id = store.record_environment(describe(program.interpreter, rehearsal, program.environment))
            for lost in store.sweep_unfinished():
                say(f"Launch {lost.id} of {lost.study_name} was cut short: it now counts as lost.", warning=True)
            earlier = earlier_results(
                store,
                space,
                plan,
                study=study_name(space, parameters),
                environment_id=environment_id,
                rehearsal=rehearsal,
            )
            study = _study(store, space, parameters, environment_id, earlier)
            store.record_search(
                study.study_name,
                space=space.name,
                space_yaml=space.model_dump_json(),
                model=space.model.path,
                baseline=space.baseline(),
                plan=plan.model_dump(mode="json"),
                rehearsal=rehearsal,
            )
        except (SpaceError, PromptsError, StorageError, HeldElsewhere) as error:
            raise Refused(str(error)) from error
        yield Search(
            parameters=parameters,
            space=space,
            plan=plan,
            prompts=prompts,
            program=program,
            store=store,
            study=study,
            preflight=preflight,
            gpus=gpus,
            environment_id=environment_id,
            folder=folder,
            board=ScoreBoard(level_weights(space, plan)),
            history=StartHistory(),
            locks=locks,
            earlier=earlier,
            traffic=_traffic(gpus, stack),
        )
