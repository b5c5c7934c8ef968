"""One engine, from settings to teardown: a process tree that cannot outlive us, watched from its first line on."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from engine import evidence, readiness, vital_signs
from engine.configuration import Configuration
from engine.failure import EngineFailed, Failure
from engine.gpus import foreign_processes, memory_used_gb
from engine.kept_tree import KeptTree
from engine.locks import GpuLocks
from engine.log_tail import LogTail
from engine.logs import LogReader
from engine.phase import Phase
from engine.ports import in_use
from engine.program import Program
from engine.progress import Progress, StartHistory
from engine.reap import reap_leftovers
from engine.stalls import Patience, StallWatch, phase_limit_s
from engine.teardown import COME_BACK_S, Teardown, await_free

# An engine that served nobody but us has nothing to finish; SGLang would drain for 5 s before it even looks.
STOP_GRACE_S = 1.0
SNAPSHOT_S = 0.5
# The first fatal line is the head of a traceback; its cause follows. So much silence, or time, ends the reading.
LAST_WORDS_QUIET_S = 0.25
LAST_WORDS_S = 1.0


class LaunchError(Exception):
    """An engine cannot even be started: the command, the log, the port or a GPU. Nothing was started."""


class Engine:
    """Owns one launch. A context manager: leaving the block ends the whole process tree.

    Args:
        program, configuration: what is started, with which flags and environment.
        log_path: the file that gets the engine's whole output.
        port: where it listens, on loopback.
        gpus: NVML indices of the GPUs that it gets (``CUDA_VISIBLE_DEVICES`` is set, unless the configuration sets it).
        start_timeout_s: seconds until it must be ready.
        history: what earlier starts of this model took, for the estimate and for stalls.
        locks: locks that a search already holds for all its launches; without, the engine takes its own (a rehearsal
            without GPUs takes none).
        wait_s: how long to wait for GPUs that somebody else uses before refusing.
        patience: how long a start may look dead.
    """

    def __init__(
        self,
        program: Program,
        configuration: Configuration,
        *,
        log_path: Path,
        port: int,
        gpus: Sequence[int] = (),
        start_timeout_s: float = 1800,
        history: StartHistory | None = None,
        locks: GpuLocks | None = None,
        wait_s: float = 0.0,
        patience: Patience | None = None,
    ) -> None:
        self.program = program
        self.configuration = configuration
        self.log_path = log_path
        self.port = port
        self.gpus = tuple(gpus)
        self.start_timeout_s = start_timeout_s
        self.history = history
        self.command = program.argv(configuration, port)
        self.ready = False
        self.evidence: dict[str, str] = {}
        self.teardown: Teardown | None = None
        self._locks = locks
        self._own_locks: GpuLocks | None = None
        self._wait_s = wait_s
        self._patience = patience or Patience()
        self._tree = KeptTree()
        self._reader = LogReader()
        self._tail: LogTail | None = None
        self._memory_before_gb: dict[int, float] = {}
        self._started_at_s = 0.0

    # -- starting

    def start(self) -> None:
        """Spawn keeper and engine.

        Raises:
            LaunchError: command, log or port cannot be used, or a foreign process is on a GPU.
            HeldElsewhere: another search holds a GPU.
        """
        executable = shutil.which(self.command[0], path=self._environment().get("PATH"))
        if executable is None:
            raise LaunchError(
                f"The engine's interpreter {self.command[0]!r} is not an executable file; name the Python that has "
                "the engine installed."
            )
        reap_leftovers()
        try:
            self._take_gpus()
            holder = in_use(self.port)
            if holder is not None:
                raise LaunchError(f"Port {self.port} is in use by {holder}; end it or choose another port.")
            try:
                self._tail = LogTail(self.log_path)
            except OSError as error:
                raise LaunchError(
                    f"The engine's log {self.log_path} cannot be written ({error.strerror}); choose another folder."
                ) from error
            self._memory_before_gb = memory_used_gb(self.gpus) if self.gpus else {}
            held = self._locks or self._own_locks
            self._started_at_s = time.monotonic()
            self._reader = LogReader(started_at=time.time())
            self._tree.start(
                self.command, self._environment(), log_path=self.log_path, locks=held.descriptors if held else ()
            )
            if self._tree.pid is None:
                why = self._tree.refused or "the keeper process did not start"
                raise LaunchError(f"The engine {self.command[0]!r} cannot be started: {why}.")
        except BaseException:
            self.stop(grace_s=0.0)
            raise

    def _environment(self) -> dict[str, str]:
        environment = self.program.environ(self.configuration)
        chosen = {**self.program.environment, **self.configuration.environment}
        if self.gpus and "CUDA_VISIBLE_DEVICES" not in chosen:
            # NVML numbers GPUs in PCI order, CUDA by itself the fastest first.
            environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in self.gpus)
        return environment

    def _take_gpus(self) -> None:
        deadline = time.monotonic() + self._wait_s
        if self._locks is None and (self.gpus or not self.program.rehearsal):
            self._own_locks = GpuLocks(self.gpus, self._wait_s)
            self._own_locks.acquire()
        while strangers := foreign_processes(self.gpus):
            if time.monotonic() >= deadline:
                raise LaunchError(f"{strangers[0].sentence()}; wait for it (--wait), end it, or choose other GPUs.")
            time.sleep(1.0)

    def starting(self) -> Iterator[Progress]:
        """Yield the progress, at least every half second, until the engine is ready.

        Raises:
            EngineFailed: it died, printed a fatal line, stalled, or took too long; the tree is gone by then.
        """
        stalls = StallWatch(self._patience)
        look_at_s = snapshot_at_s = 0.0
        seen: object = None
        with readiness.HealthProbe(self.port) as probe:
            while not self.ready:
                self._take_in()
                self._end_if_failed()
                now_s = time.monotonic()
                self.ready = self._is_ready(probe)
                if now_s >= look_at_s and not self.ready:
                    look_at_s = now_s + self._patience.look_s
                    self._end_if_stalled(stalls)
                if now_s >= self._started_at_s + self.start_timeout_s and not self.ready:
                    self._fail(
                        f"not ready after {self.start_timeout_s:.0f} s",
                        "Give it more time (start timeout), or see its log for what it waits for.",
                    )
                state = (self.phases, self.ready)
                if state != seen or now_s >= snapshot_at_s:
                    seen, snapshot_at_s = state, now_s + SNAPSHOT_S
                    yield self.progress()
                self._tree.listen(0.01 if now_s - self._started_at_s < 5.0 else 0.05)

    def _is_ready(self, probe: readiness.HealthProbe) -> bool:
        if self._reader.ready and not probe.healthy_answers:
            probe.nudge()
        if not readiness.is_ready(self._reader.ready, probe.healthy_answers, None):
            return False
        ours = readiness.listener_is_ours(self.port, self.process_ids())
        return readiness.is_ready(self._reader.ready, probe.healthy_answers, ours)

    # -- watching

    def check(self) -> None:
        """Raise EngineFailed if the engine has died or printed a fatal line; to be asked several times a second."""
        self._take_in()
        self._end_if_failed()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The engine's own process, the parent of its ranks; ``None`` before the start."""
        return self._tree.pid

    @property
    def keeper_pid(self) -> int | None:
        """The process that owns the tree for us; ``guard_pid`` is its parent, which does so in its place."""
        return self._tree.keeper_pid

    @property
    def guard_pid(self) -> int | None:
        """The keeper's guard."""
        return self._tree.guard_pid

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases so far, of every rank."""
        return self._reader.phases

    def progress(self) -> Progress:
        """The state of the start, now; ``ready`` once HTTP has confirmed what the log says."""
        return replace(self._reader.progress(self.history, time.time()), ready=self.ready)

    def process_ids(self) -> list[int]:
        """Every process of the tree, now."""
        return [process.pid for process in self._tree.members()]

    def server_info(self, timeout_s: float = 10.0) -> dict[str, Any]:
        """What the engine says that it really runs; empty where it does not say."""
        return readiness.server_info(self.port, timeout_s)

    def take_evidence(self) -> dict[str, str]:
        """Stacks, GPU state, kernel log, sockets and last lines, as texts by name; for an engine that hangs."""
        self.evidence = evidence.collect(self._tree.members(), self.log_path)
        return self.evidence

    def _take_in(self) -> None:
        self._tree.listen()
        while self._tail is not None and (piece := self._tail.read()):
            self._reader.feed(piece)

    # -- failing

    def _end_if_failed(self) -> None:
        if self._tree.running and not self._reader.fatal:
            return
        until_s = time.monotonic() + LAST_WORDS_S
        quiet_since_s = time.monotonic()
        while self._tree.running and time.monotonic() < min(until_s, quiet_since_s + LAST_WORDS_QUIET_S):
            before = self._tail.bytes_read if self._tail else 0
            self._tree.listen(0.02)
            self._take_in()
            if self._tail and self._tail.bytes_read != before:
                quiet_since_s = time.monotonic()
        ended_by_itself = self._tree.exit_status
        self.stop(grace_s=0.0)
        failure = self._reader.failure(ended_by_itself)
        if failure is None:
            failure = self._unknown(self._how_it_ended(ended_by_itself), "See the end of its log.")
        if self._tree.keeper_killed and not self._reader.fatal:
            failure = replace(failure, blame="transient")
        raise EngineFailed(self._with_last_lines(failure))

    def _with_last_lines(self, failure: Failure) -> Failure:
        """What has no evidence of its own is shown by the end of the log."""
        return failure if failure.evidence else replace(failure, evidence=evidence.last_lines(self.log_path)[-2000:])

    def _how_it_ended(self, status: int | None) -> str:
        if self._tree.keeper_killed:
            return "the keeper process of the engine was killed from outside, and the engine with it"
        if status is None:
            return "the engine ended"
        if status < 0:
            return f"the engine was ended by signal {-status}"
        return f"the engine ended by itself with exit status {status}"

    def _unknown(self, cause: str, remedy: str) -> Failure:
        if self.ready:
            return Failure(None, "serving", cause, "unknown", remedy, "")
        progress = self.progress()
        rank = progress.behind
        phase = progress.current.get(rank) if rank else next(iter(progress.current.values()), None)
        return Failure(rank, phase.name if phase else "arguments", cause, "unknown", remedy, "")

    def _fail(self, cause: str, remedy: str) -> None:
        """End an engine that does not end by itself, its state taken first."""
        failure = self._unknown(cause, remedy)
        self.take_evidence()
        self.stop(grace_s=0.0)
        raise EngineFailed(self._with_last_lines(failure))

    def _end_if_stalled(self, stalls: StallWatch) -> None:
        progress = self.progress()
        phase = progress.current.get(progress.behind or "") or next(iter(progress.current.values()), None)
        known = self.history.spread(phase.name) if self.history and phase else None
        limit_s = phase_limit_s(known.median_s, known.most_s, self._patience) if known else self._patience.phase_s
        elapsed_s = time.monotonic() - self._started_at_s
        if phase is not None and phase.started_at is not None:
            elapsed_s = min(elapsed_s, time.time() - phase.started_at)
        signs = vital_signs.take(self._tree.members(), self._tail.bytes_read if self._tail else 0, self.gpus)
        why = stalls.stalled(signs, elapsed_s, limit_s)
        if why is not None:
            self._fail(f"stalled: {why}", "The stacks that were taken show where each rank waits.")

    # -- ending

    def stop(self, grace_s: float = STOP_GRACE_S) -> Teardown:
        """SIGTERM, a grace, SIGKILL of all that is left; then wait for port and GPU memory. Idempotent."""
        if self.teardown is not None:
            return self.teardown
        began_s = time.monotonic()
        if self._tree.pid is None:
            self._tree.stop(0.0)
            self._release()
            return Teardown(0.0, 0, True, True)
        gone = self._tree.stop(grace_s, COME_BACK_S)
        self._take_in()
        self._reader.finish()
        port_free, memory_free, failure = await_free(
            self.port, self._memory_before_gb, gone, max(0.0, COME_BACK_S - (time.monotonic() - began_s))
        )
        self.teardown = Teardown(time.monotonic() - began_s, self._tree.killed, port_free, memory_free, gone, failure)
        self._release()
        return self.teardown

    def _release(self) -> None:
        if self._tail is not None:
            self._tail.restore()
            self._tail.close()
            self._tail = None
        if self._own_locks is not None:
            self._own_locks.release()
            self._own_locks = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(STOP_GRACE_S if error is None else 0.0)
