"""Watching any SGLang start: from its log, its process, or its address.

    summary("server.log")                       # {version, ready, ranks, failure}
    run("server.log", as_json=True, out=sys.stdout)   # exit status 0 ready, 1 failed, 3 neither

A log is followed until the engine is ready, has failed, or nobody writes to it any more. A process is followed through
the file that its output goes to; where that is none, its tree is shown and its ports are asked.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from rich.console import Console
from rich.live import Live

from engine.failure import Failure
from engine.logs import LogReader
from engine.phase import Phase
from engine.progress import StartHistory
from engine.watch_source import Address, Answer, LogFile, Watched, WatchError, log_of_process, tree_lines, tree_url
from engine.watch_view import PhaseLines, failure_lines, plain, table

READY, FAILED, NEITHER = 0, 1, 3

_PIECE = 1 << 20
_BETWEEN_S = 0.25
_LAST_WORDS_S = 1.0  # after the first fatal line: how long the log may be silent before it is taken as whole

__all__ = ["FAILED", "NEITHER", "READY", "WatchError", "follow", "read", "run", "summary"]


def read(source: str | Path | BinaryIO) -> LogReader:
    """The reader of a whole log.

    Raises:
        WatchError: there is no such file, or it cannot be read.
    """
    reader = LogReader()
    if isinstance(source, str | Path):
        try:
            with open(source, "rb") as file:
                _read_into(reader, file)
        except OSError as error:
            raise WatchError(
                f"The log {source} cannot be read ({error.strerror}): name a file that is there."
            ) from None
    else:
        _read_into(reader, source)
    reader.finish()
    return reader


def _read_into(reader: LogReader, file: BinaryIO) -> None:
    while piece := file.read(_PIECE):
        reader.feed(piece)


def summary(source: str | Path | BinaryIO) -> dict[str, Any]:
    """A log in one object: ``version``, ``ready``, ``ranks`` (rank to its phases), ``failure`` (or ``None``)."""
    reader = read(source)
    return _object(reader.version, reader.ready, reader.phases, reader.failure())


def _object(version: str | None, ready: bool, phases: tuple[Phase, ...], failure: Failure | None) -> dict[str, Any]:
    ranks: dict[str, list[dict[str, Any]]] = {}
    for phase in phases:
        ranks.setdefault(phase.rank, []).append(
            {
                "phase": phase.name,
                "elapsed_s": phase.elapsed_s,
                "memory_used_gb": phase.memory_used_gb,
                "memory_left_gb": phase.memory_left_gb,
                "done": phase.done,
            }
        )
    return {"version": version, "ready": ready, "ranks": ranks, "failure": failure.as_dict() if failure else None}


def follow(file: LogFile, reader: LogReader) -> Iterator[None]:
    """Feeds a growing log to the reader; yields after each look, ends when the start has ended, one way or another."""
    silent_since = time.monotonic()
    while True:
        grown = False
        while piece := file.read():
            reader.feed(piece)
            grown = True
        if grown:
            silent_since = time.monotonic()
        yield
        silent_s = time.monotonic() - silent_since
        if reader.ready or (reader.fatal and silent_s > _LAST_WORDS_S) or (not grown and not file.alive()):
            reader.finish()
            yield
            return
        time.sleep(_BETWEEN_S)


def run(target: str, as_json: bool, out: TextIO, history: StartHistory | None = None) -> int:
    """Shows the start at ``target`` (a log, a process id, or a URL) on ``out``.

    Returns:
        0 when the engine is ready, 1 when it failed, 3 when it is neither.

    Raises:
        WatchError: the target is none of the three, or cannot be read; one sentence.
    """
    try:
        if target.startswith(("http://", "https://")):
            return _run_address(Address(target), as_json, out)
        if target.isdecimal() and not Path(target).exists():
            return _run_process(int(target), as_json, out, history)
        if as_json:
            return _print_object(summary(target), out)
        return _run_log(LogFile(Path(target)), out, history)
    except KeyboardInterrupt:
        return NEITHER


def _print_object(found: dict[str, Any], out: TextIO) -> int:
    out.write(json.dumps(found, ensure_ascii=False) + "\n")
    return READY if found["ready"] and not found["failure"] else FAILED if found["failure"] else NEITHER


def _run_log(file: LogFile, out: TextIO, history: StartHistory | None) -> int:
    reader = LogReader()
    with file:
        show = _show_table if out.isatty() else _show_lines
        show(file, reader, out, history)
    failure = reader.failure()
    if failure is not None:
        out.writelines(line + "\n" for line in failure_lines(failure))
        return FAILED
    if reader.ready:
        out.write(f"ready{f', SGLang {reader.version}' if reader.version else ''}\n")
        return READY
    out.write("The log ends before the engine was ready, without saying why.\n")
    return NEITHER


def _show_table(file: LogFile, reader: LogReader, out: TextIO, history: StartHistory | None) -> None:
    with Live(console=Console(file=out), auto_refresh=False) as live:
        for _ in follow(file, reader):
            now = time.time() if file.alive() else reader.last_at
            live.update(table(reader.progress(history, now), now, reader.version), refresh=True)


def _show_lines(file: LogFile, reader: LogReader, out: TextIO, _history: StartHistory | None) -> None:
    lines = PhaseLines()
    for _ in follow(file, reader):
        out.writelines(line + "\n" for line in lines.new(reader.phases))
        out.flush()
    out.writelines(line + "\n" for line in lines.rest(reader.phases))


def _run_process(pid: int, as_json: bool, out: TextIO, history: StartHistory | None) -> int:
    log = log_of_process(pid)
    if log is not None:
        return _print_object(summary(log), out) if as_json else _run_log(LogFile(log, Watched(pid)), out, history)
    url = tree_url(pid)
    if not as_json:
        for line in tree_lines(pid):
            out.write(plain(line) + "\n")
    if url is not None:
        return _run_address(Address(url), as_json, out)
    if as_json:
        return _print_object(_object(None, False, (), None), out)
    out.write(
        f"The output of process {pid} goes to no file and it listens nowhere yet, so its phases cannot be seen.\n"
    )
    return NEITHER


def _run_address(address: Address, as_json: bool, out: TextIO) -> int:
    said: Answer | None = None
    while True:
        answer = address.ask()
        if as_json:
            return _print_object(_object(answer.version, answer.ready, (), None), out)
        if answer != said:
            out.write(plain(answer.sentence) + "\n")
            out.flush()
            said = answer
        if answer.ready:
            return READY
        time.sleep(1.0)
