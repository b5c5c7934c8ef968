"""Watching a log, a process and an address."""

from __future__ import annotations

import contextlib
import http.server
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from start_of_a_log import FIRED_UP, SIGQUIT, raised, stamped, up_to
from start_of_a_log import READY as UVICORN

from engine.logs import LogReader
from engine.progress import StartHistory
from engine.watch import FAILED, NEITHER, READY, WatchError, run
from engine.watch_view import failure_lines, seconds_text, table


def long_ago(path: Path, text: str) -> str:
    """A log that nobody has written to for an hour."""
    path.write_text(text, encoding="utf-8")
    os.utime(path, (time.time() - 3600,) * 2)
    return str(path)


def shown(target: str, as_json: bool = False) -> tuple[int, str]:
    out = io.StringIO()
    return run(target, as_json, out), out.getvalue()


def test_json_is_one_object_with_just_these_names(tmp_path: Path) -> None:
    status, text = shown(long_ago(tmp_path / "log", up_to("ready")), as_json=True)
    found = json.loads(text)
    assert status == READY
    assert list(found) == ["version", "ready", "ranks", "failure"]
    assert list(found["ranks"]) == ["TP0", "TP1"]
    assert list(found["ranks"]["TP0"][0]) == ["phase", "elapsed_s", "memory_used_gb", "memory_left_gb", "done"]


def test_json_of_a_failure_has_just_these_names(tmp_path: Path) -> None:
    log = up_to("weights") + raised("TP1", "ValueError: in features size is not multiple of 16") + SIGQUIT
    status, text = shown(long_ago(tmp_path / "log", log), as_json=True)
    assert status == FAILED
    assert list(json.loads(text)["failure"]) == ["rank", "phase", "cause", "blame", "remedy", "evidence"]


def test_a_log_that_ends_before_its_time_is_neither(tmp_path: Path) -> None:
    path = long_ago(tmp_path / "log", up_to("weights"))
    assert shown(path, as_json=True)[0] == NEITHER
    status, text = shown(path)
    assert status == NEITHER
    assert "TP0: weights, not ended" in text


def test_a_file_gets_one_line_a_phase_and_no_control_characters(tmp_path: Path) -> None:
    bar = "\rCapturing batches (bs=16 avail_mem=42.51 GB):  25%|\x1b[1m##   | 3/12 [00:41<07:41, 41.94s/it]"
    status, text = shown(long_ago(tmp_path / "log", up_to("target graphs") + bar + "\n" + UVICORN + FIRED_UP))
    assert status == READY
    lines = text.splitlines()
    assert "TP1: weights, 20 s, used 30.00 GB, left 60.00 GB" in lines
    assert lines[-1] == "ready, SGLang 0.5.14-0.5.20"
    assert sum(line.startswith("TP0: weights") for line in lines) == 1
    assert all(letter.isprintable() for line in lines for letter in line)


def test_a_failure_is_told_in_three_lines(tmp_path: Path) -> None:
    log = up_to("weights") + raised("TP1", "ValueError: in features\x07 size is not multiple of 16") + SIGQUIT
    reader = LogReader()
    reader.feed(log.encode())
    failure = reader.failure()
    assert failure is not None
    where, evidence, remedy = failure_lines(failure)
    assert where.startswith("TP1, weights: ")
    assert evidence.startswith("evidence: ")
    assert remedy
    status, text = shown(long_ago(tmp_path / "log", log))
    assert status == FAILED
    assert text.splitlines()[-3:] == [where, evidence, remedy]


def test_a_growing_log_is_followed_until_it_is_ready(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(up_to("weights"), encoding="utf-8")

    def write() -> None:
        with path.open("a", encoding="utf-8") as file:
            for line in (UVICORN + FIRED_UP).splitlines(keepends=True):
                time.sleep(0.1)
                file.write(line)
                file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    status, text = shown(str(path))
    writer.join()
    assert status == READY
    assert text.splitlines()[-1].startswith("ready")


def test_a_log_that_is_truncated_and_written_anew_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(up_to("weights") * 3, encoding="utf-8")
    timer = threading.Timer(0.6, lambda: path.write_text(up_to("ready"), encoding="utf-8"))
    timer.start()
    assert shown(str(path))[0] == READY
    timer.join()


def test_a_process_is_watched_through_the_file_it_writes_to(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = f"import sys, time; sys.stderr.write({up_to('ready')!r}); sys.stderr.flush(); time.sleep(30)"
    with path.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", program], stderr=file, stdout=subprocess.DEVNULL)
    try:
        assert shown(str(process.pid))[0] == READY
        assert json.loads(shown(str(process.pid), as_json=True)[1])["ready"] is True
    finally:
        process.kill()
        process.wait()


def test_the_end_of_a_watched_process_is_the_end_of_its_log(tmp_path: Path) -> None:
    path = tmp_path / "log"
    program = f"import sys, time; sys.stderr.write({up_to('weights')!r}); sys.stderr.flush(); time.sleep(1)"
    with path.open("wb") as file:
        process = subprocess.Popen([sys.executable, "-c", program], stderr=file, stdout=subprocess.DEVNULL)
    reaper = threading.Thread(target=process.wait)
    reaper.start()
    assert shown(str(process.pid))[0] == NEITHER
    reaper.join()


def test_a_process_that_writes_to_no_file_shows_its_tree() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(30)"], stderr=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        status, text = shown(str(process.pid))
    finally:
        process.kill()
        process.communicate()
    assert status == NEITHER
    assert text.startswith(f"{process.pid} python")


@contextlib.contextmanager
def server(*codes: int) -> Iterator[str]:
    """Answers /health with these codes, one after another, the last one for ever."""
    left = list(codes)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            health = self.path == "/health"
            code = (left.pop(0) if len(left) > 1 else left[0]) if health else 200
            self.send_response(code)
            self.end_headers()
            if not health:
                self.wfile.write(b'{"version": "0.5.23"}')

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


def test_an_address_is_asked_until_it_is_ready() -> None:
    with server(503, 200) as url:
        status, text = shown(url)
    assert status == READY
    assert text.splitlines() == [f"{url} is up and warms up.", f"{url} is ready, SGLang 0.5.23."]


def test_json_of_an_address_asks_once() -> None:
    with server(200) as url:
        assert json.loads(shown(url, as_json=True)[1]) == {
            "version": "0.5.23", "ready": True, "ranks": {}, "failure": None,
        }  # fmt: skip
    assert shown(url, as_json=True)[0] == NEITHER


@pytest.mark.parametrize("target", ["/no/such/log", "999999999", "http://"])
@pytest.mark.parametrize("as_json", [True, False])
def test_what_cannot_be_watched_is_said_in_one_sentence(target: str, as_json: bool) -> None:
    with pytest.raises(WatchError) as raised_error:
        shown(target, as_json)
    assert target in str(raised_error.value)
    assert "\n" not in str(raised_error.value)


def test_the_table_has_a_row_a_rank_and_says_who_is_behind() -> None:
    log = up_to("weights", ("TP0", "TP1", "TP2"))
    for rank in ("TP0", "TP1"):
        log += stamped("Load weight end. elapsed=20.00 s, type=X, avail mem=60.00 GB, mem usage=30.00 GB.", rank, 40)
    reader = LogReader()
    reader.feed(log.encode())
    finished = LogReader()
    finished.feed(up_to("ready").encode())
    history = StartHistory.of([finished.phases])
    console = Console(file=io.StringIO(), width=120)
    console.print(table(reader.progress(history), reader.last_at, "0.5.17"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert [rank for rank in ("TP0", "TP1", "TP2") if rank in text] == ["TP0", "TP1", "TP2"]
    assert next(line for line in text.splitlines() if "behind" in line).split()[1] == "TP2"
    assert "left" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, ""), (0.41, "0.4 s"), (58.4, "58 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")]
)
def test_seconds_read_as_a_person_says_them(seconds: float | None, text: str) -> None:
    assert seconds_text(seconds) == text
