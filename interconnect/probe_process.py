"""The processes of one candidate: one a GPU, started fresh, read with a time limit, and gone afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

CHILD = Path(__file__).with_name("probe_child.py")
_MARK = "probe:"
_EVIDENCE = 3000


class CandidateFailed(Exception):
    """One candidate ended badly.

    Attributes:
        stage: what rank 0 was doing last.
        hung: it was killed for lateness and did not end by itself.
    """

    def __init__(self, stage: str, evidence: str, status: int | None, hung: bool, waited_s: float) -> None:
        super().__init__(evidence)
        self.stage, self.evidence, self.status = stage, evidence, status
        self.hung, self.waited_s = hung, waited_s


@dataclass(frozen=True)
class Limits:
    """Seconds: for the imports, for any later stage without news, and for a candidate as a whole."""

    imports_s: float = 180.0
    stage_s: float = 30.0
    whole_s: float = 300.0


class RankProcesses:
    """All ranks of one candidate; a context manager that leaves none behind."""

    def __init__(
        self, interpreter: str, environment: Mapping[str, str], settings: Mapping[str, Any], limits: Limits
    ) -> None:
        # the ranks run in a folder of their own, where a relative path would lead nowhere
        self._interpreter = os.path.abspath(interpreter) if os.sep in interpreter else interpreter
        self._environment, self._limits = dict(environment), limits
        self._settings = dict(settings)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._errors: list[IO[bytes]] = []
        self._unread = b""
        self.stage = "start"

    def __enter__(self) -> RankProcesses:
        self._folder = tempfile.TemporaryDirectory(prefix="quietlane-probe-")
        rendezvous = f"file://{self._folder.name}/rendezvous"
        try:
            for rank in range(self._settings["world"]):
                self._start({**self._settings, "rank": rank, "rendezvous": rendezvous, "parent": os.getpid()})
        except OSError as error:
            self._end()
            raise CandidateFailed("start", f"{self._interpreter}: {error}", None, False, 0.0) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _start(self, settings: dict[str, Any]) -> None:
        errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _end
        self._errors.append(errors)
        first = settings["rank"] == 0
        self._processes.append(
            subprocess.Popen(
                [self._interpreter, str(CHILD), json.dumps(settings)],
                env=self._environment,
                stdin=subprocess.PIPE if first else subprocess.DEVNULL,
                stdout=subprocess.PIPE if first else errors,
                stderr=errors,
                cwd=self._folder.name,  # a candidate may have NCCL write files
                start_new_session=True,
            )
        )

    def told(self) -> Iterator[dict[str, Any]]:
        """What rank 0 tells, until all is done.

        Raises:
            CandidateFailed: an error, an early end, or nothing new within the limits.
        """
        begin = time.monotonic()
        while True:
            allowed = self._limits.imports_s if self.stage in ("start", "imports") else self._limits.stage_s
            deadline = min(time.monotonic() + allowed, begin + self._limits.whole_s)
            line = self._next(deadline)
            if line is None:
                raise self._failed(time.monotonic() - begin)
            if "error" in line:
                time.sleep(0.2)  # the other ranks write why, too
                raise CandidateFailed(self.stage, f"{self.evidence()}\n{line['error']}".strip(), 1, False, 0.0)
            self.stage = line.get("stage", self.stage)
            if self.stage == "done":
                return
            yield line

    def go(self) -> None:
        """Let the ranks run what they are ready for."""
        stdin = self._processes[0].stdin
        assert stdin is not None
        with contextlib.suppress(OSError):  # it has ended: the next line says so
            stdin.write(b"go\n")
            stdin.flush()

    def _next(self, deadline: float) -> dict[str, Any] | None:
        """The next line meant for us; ``None`` at the deadline, or when a rank has ended."""
        stdout = self._processes[0].stdout
        assert stdout is not None
        while True:
            while b"\n" in self._unread:
                line, _, self._unread = self._unread.partition(b"\n")
                text = line.decode(errors="replace")
                if text.startswith(_MARK):
                    told: dict[str, Any] = json.loads(text.removeprefix(_MARK))
                    return told
                self._errors[0].write(line + b"\n")  # NCCL prints there too
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            # a rank other than the first may die while the first waits for it
            if select.select([stdout], [], [], min(left, 0.5))[0]:
                piece = os.read(stdout.fileno(), 65536)
                if not piece:
                    return None
                self._unread += piece
            elif any(process.poll() not in (None, 0) for process in self._processes):
                return None

    def _failed(self, waited_s: float) -> CandidateFailed:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._processes[0].wait(0.5)  # its output has ended: it may just be going
        statuses = [process.poll() for process in self._processes]
        ended = next((status for status in statuses if status not in (None, 0)), None)
        return CandidateFailed(self.stage, self.evidence(), ended, ended is None, waited_s)

    def evidence(self) -> str:
        """The end of what every rank wrote."""
        said = []
        for rank, errors in enumerate(self._errors):
            errors.flush()
            size = os.fstat(errors.fileno()).st_size
            text = os.pread(errors.fileno(), _EVIDENCE, max(0, size - _EVIDENCE)).decode(errors="replace").strip()
            if text:
                said.append(f"rank {rank}: {text}")
        return "\n".join(said)[-2 * _EVIDENCE :]

    def _end(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10.0)  # one that the driver holds cannot be awaited; it must not hold us
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        for errors in self._errors:
            errors.close()
        self._folder.cleanup()


def environment_for(
    gpus: Sequence[int], environment: Mapping[str, str], candidate: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of a candidate's processes; ``gpus`` are NVML's indices (PCI order)."""
    whole = {**os.environ, "NCCL_GRAPH_REGISTER": "0", **environment, **candidate}
    if gpus:
        whole |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
    return whole
