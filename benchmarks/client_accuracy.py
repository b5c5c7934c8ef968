"""How exact the client is: against a server whose true figures are known, and beside sglang.bench_serving.

    python benchmarks/client_accuracy.py --engine-python PYTHON_WITH_SGLANG --model FOLDER \
        --write docs/measurements/client-accuracy.md

The known server (``tests/benchmark/known_server.py``: 20 ms to the first of three-token chunks, then 5 ms a token) and
the clients are scheduled before everything else where the machine allows it, since a clock that waits for a core shows
the core's queue. Then the real SGLang serves the small model, without and with NEXTN, and both clients measure it in
turn with the same prompts, its prefix cache flushed each time. ``--first`` schedules the engine and the clients before
everything else on a busy machine (needs root, and leaves little to others for some minutes).
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "benchmark")]

from known_server_process import ahead_of_others, known_server, lateness_ms  # noqa: E402

from benchmark import crosscheck  # noqa: E402
from benchmark.answers import Answers, collect  # noqa: E402
from benchmark.judgement import agreement, judge  # noqa: E402
from benchmark.load import measure  # noqa: E402
from benchmark.observers import Observer  # noqa: E402
from benchmark.plan import Endpoint, Plan  # noqa: E402
from benchmark.prompt_source import PromptSource  # noqa: E402
from benchmark.prompts import load  # noqa: E402
from benchmark.results import Level, Measurement  # noqa: E402
from benchmark.statistics import ratio_interval  # noqa: E402
from engine.configuration import Configuration  # noqa: E402
from engine.cpu.program import cpu_program  # noqa: E402
from engine.launch import Engine  # noqa: E402
from engine.ports import free_port  # noqa: E402
from engine.program import Program  # noqa: E402

ENDPOINTS: tuple[Endpoint, ...] = ("/generate", "/v1/completions", "/v1/chat/completions")
KNOWN_LEVEL = Level(16, None, 96, 48)
# 16 in flight, each 20 ms to the first three tokens and 5 ms for each of the other 93.
KNOWN_THROUGHPUT = 16 * 96 / (0.020 + 93 * 0.005)

PLAIN = {
    "--device": "cpu",
    "--sampling-backend": "pytorch",
    "--disable-overlap-schedule": True,
    "--cuda-graph-backend-decode": "disabled",
    "--cuda-graph-backend-prefill": "disabled",
    "--mem-fraction-static": 0.1,
    "--max-total-tokens": 8192,
    "--max-running-requests": 16,
    "--max-mamba-cache-size": 48,
}
ENGINES: dict[str, dict[str, Any]] = {
    "plain": {**PLAIN, "--attention-backend": "torch_native"},
    "NEXTN 3/1/4": {
        **PLAIN,
        "--prefill-attention-backend": "intel_amx",
        "--decode-attention-backend": "intel_amx",
        "--speculative-algorithm": "NEXTN",
        "--speculative-num-steps": 3,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": 4,
    },
}


@dataclass
class Pair:
    """One round: the same load by both clients, each beside the throughput on the relay's clock, in tok/s."""

    ours: Measurement
    ours_truth: float
    theirs: dict[str, Any]
    theirs_truth: float


@dataclass
class Relay:
    """The relay of ``recording_proxy.py``."""

    url: str
    clock_port: int

    def seconds(self) -> float:
        """From the first request in to the last byte out since it was last asked."""
        with socket.create_connection(("127.0.0.1", self.clock_port), timeout=10) as connection:
            return float(connection.makefile().readline())


@contextlib.contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay before a server, as a process of its own."""
    command = [sys.executable, str(ROOT / "benchmarks" / "recording_proxy.py"), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        relay_port, clock_port = process.stdout.readline().split()
        yield Relay(f"http://127.0.0.1:{relay_port}", int(clock_port))
    finally:
        process.kill()
        process.wait()


class Clock(Observer):
    """Reads the relay's clock over the measured window."""

    def __init__(self, relayed: Relay) -> None:
        self.relayed = relayed
        self.seconds = 0.0

    def before_start(self) -> None:
        """What went before does not count."""
        self.relayed.seconds()

    def after_finish(self) -> dict[str, Any]:
        """The span of the load."""
        self.seconds = self.relayed.seconds()
        return {}


def against_the_known_server() -> list[str]:
    """Table rows: what the client reads of a server whose figures are known."""
    rows = []
    for endpoint in ENDPOINTS:
        with known_server() as (url, process), ahead_of_others(process.pid):
            plan = Plan(warm_up_s=1, warm_up_window_s=0.2, endpoint=endpoint)
            found = measure(url, KNOWN_LEVEL, PromptSource(load()), plan)
            late = lateness_ms(url)
        assert found.ttft_ms
        assert found.tpot_ms
        rows.append(
            f"| `{endpoint}` | {found.ttft_ms.mean:.1f} | {found.tpot_ms.mean:.3f} | {found.output_throughput:.0f} "
            f"| {100 * (found.output_throughput / KNOWN_THROUGHPUT - 1):+.1f} % | {late:.2f} |"
        )
    return rows


def bench_serving_against_the_known_server(program: Program, model: str) -> str:
    """Table row: what ``sglang.bench_serving`` reads of the same server."""
    with known_server() as (url, process), ahead_of_others(process.pid):
        found = crosscheck.run(program, url, KNOWN_LEVEL, PromptSource(load()), Plan(), model=model)
        late = lateness_ms(url)
    if "unavailable" in found:
        return f"| `sglang.bench_serving` | {found['unavailable']} | | | | |"
    throughput = found["output_throughput"]
    return (
        f"| `sglang.bench_serving` | {found['mean_ttft_ms']:.1f} | {found['mean_tpot_ms']:.3f} | {throughput:.0f} "
        f"| {100 * (throughput / KNOWN_THROUGHPUT - 1):+.1f} % | {late:.2f} |"
    )


def beside_bench_serving(
    name: str, program: Program, model: str, level: Level, rounds: int, first: bool
) -> tuple[list[Pair], Answers, str]:
    """Both clients in turn on one engine, each round beginning with the other; its greedy answers; its version."""
    # One thread for the model leaves a core to the client that measures it.
    configuration = Configuration({**ENGINES[name], "--model-path": model}, {"OMP_NUM_THREADS": "1"})
    folder = Path(tempfile.mkdtemp(prefix="quietlane-accuracy-"))
    pairs = []
    with Engine(program, configuration, log_path=folder / "engine.log", port=free_port()) as engine:
        engine.start()
        for _ in engine.starting():
            pass
        plan = Plan(warm_up_s=6)
        answers = collect(engine.url, check=engine.check)
        with relay(engine.port) as before, before_everything_else(engine.process_ids(), first):
            for number in range(rounds):

                def ours(number: int = number) -> tuple[Measurement, float]:
                    flush(engine.url)
                    clock, source = Clock(before), PromptSource(load(), seed=number)
                    found = measure(before.url, level, source, plan, engine.check, observers=[clock])
                    return found, found.completed * level.output_tokens / clock.seconds

                def theirs(number: int = number) -> tuple[dict[str, Any], float]:
                    flush(engine.url)
                    source = PromptSource(load(), seed=number)
                    before.seconds()
                    found = crosscheck.run(program, before.url, level, source, plan, engine.check, model=model)
                    seconds = before.seconds()
                    return found, found.get("completed", 0) * level.output_tokens / seconds if seconds else 0.0

                if number % 2:
                    second = theirs()
                    pairs.append(Pair(*ours(), *second))
                else:
                    pairs.append(Pair(*ours(), *theirs()))
                print(*rows_of(name, pairs[-1:], number + 1), flush=True)
        version = str(engine.server_info().get("version"))
    return pairs, answers, version


def flush(url: str) -> None:
    """Empty the engine's prefix cache."""
    for _ in range(50):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/flush_cache", b"", timeout=30):
            return
        time.sleep(0.2)


@contextlib.contextmanager
def before_everything_else(pids: list[int], wanted: bool) -> Iterator[None]:
    """All threads of some processes, and this process with its children to come, scheduled first, where allowed."""
    if wanted:
        threads = [int(task.name) for pid in [*pids, os.getpid()] for task in Path(f"/proc/{pid}/task").glob("*")]
        with contextlib.suppress(PermissionError, ProcessLookupError):
            for thread in threads:
                os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(5))
    try:
        yield
    finally:
        if wanted:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def rows_of(name: str, pairs: list[Pair], first: int = 1) -> list[str]:
    """Table rows of one engine: each round, and the rounds together."""
    rows = []
    errors: list[tuple[float, float]] = []
    for number, pair in enumerate(pairs, start=first):
        ours = f"{pair.ours.output_throughput:.2f} | {pair.ours_truth:.2f}"
        accepted = f"{pair.ours.acceptance_length:.2f}" if pair.ours.acceptance_length else "-"
        if "unavailable" in pair.theirs:
            rows.append(f"| {name} | {number} | {ours} | | {pair.theirs['unavailable']} | | | {accepted} |")
            continue
        reported = pair.theirs["output_throughput"]
        errors.append((pair.ours.output_throughput / pair.ours_truth - 1, reported / pair.theirs_truth - 1))
        here, there = (f"{100 * error:+.2f} %" for error in errors[-1])
        theirs = f"{reported:.2f} | {pair.theirs_truth:.2f} | {there}"
        rows.append(f"| {name} | {number} | {ours} | {here} | {theirs} | {accepted} |")
    if len(errors) > 1:
        here, there = (f"{100 * statistics.mean(values):+.2f} %" for values in zip(*errors, strict=True))
        a, b = [pair.ours.output_throughput for pair in pairs], [pair.theirs["output_throughput"] for pair in pairs]
        verdict = ratio_interval(a, b).sentence()
        rows.append(f"| **{name}** | all | | | **{here}** | | | **{there}** | rounds against rounds: {verdict} |")
    return rows


def main() -> None:
    """Measure, print, and write the page where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine-python", type=Path, help="interpreter that has SGLang for the CPU")
    parser.add_argument("--model", type=Path, help="folder of the small model")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--first", action="store_true", help="schedule engine and clients before everything else")
    parser.add_argument("--write", type=Path, help="Markdown page to write")
    given = parser.parse_args()
    lines = [
        "# How exact the client is",
        "",
        f"`{shlex.join(['python', *(placeholder(word) for word in sys.argv)])}`, "
        f"{datetime.datetime.now().astimezone():%Y-%m-%d %H:%M %Z}, {machine()}.",
        "",
        "## A server whose true figures are known",
        "",
        f"20 ms to the first chunk, 5 ms a token, three tokens a chunk, concurrency 16: {KNOWN_THROUGHPUT:.0f} tok/s.",
        "",
        "| endpoint | TTFT, ms | TPOT, ms | tok/s | against the truth | the server was late itself by, ms |",
        "| --- | --- | --- | --- | --- | --- |",
        *against_the_known_server(),
    ]
    if given.engine_python and given.model:
        level = Level(given.concurrency, None, given.output_tokens, given.requests)
        program = cpu_program(given.engine_python)
        model = str(given.model.resolve())
        lines += [
            bench_serving_against_the_known_server(program, model),
            "",
            "## Beside sglang.bench_serving, on the same real server with the same prompts",
            "",
            f"Concurrency {level.concurrency}, {level.requests} requests of {level.output_tokens} tokens, greedy. Both "
            "count output tokens over the whole run. A relay before the server keeps the true time of each run (first "
            "request in to last byte out), since two runs one after the other meet different minutes of the machine.",
            "",
            "| engine | round | quietlane, tok/s | true | error | bench_serving, tok/s | true | error | acceptance |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        answers: dict[str, Answers] = {}
        for name in ENGINES:
            pairs, answers[name], version = beside_bench_serving(name, program, model, level, given.rounds, given.first)
            lines += rows_of(f"{version}, {name}", pairs)
        plain, speculating = answers.values()
        faults = judge(plain, speculating, ENGINES["NEXTN 3/1/4"]["--speculative-num-steps"])
        verdict = "; ".join(fault.sentence for fault in faults) or "no fault"
        lines += [
            "",
            f"NEXTN's greedy answers against plain ones: {agreement(plain, speculating).sentence()}: {verdict}.",
        ]
    page = "\n".join(lines) + "\n"
    print(page)
    if given.write:
        given.write.parent.mkdir(parents=True, exist_ok=True)
        given.write.write_text(page, encoding="utf-8")


def placeholder(word: str) -> str:
    """A word of the command line without this machine's folders."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name.upper()


def machine() -> str:
    """Processor, cores, how busy it was, and versions."""
    information = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in information if line.startswith("model name")]
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    load_average = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores (load average {load_average}), "
        f"Linux {platform.release()}, Python {platform.python_version()}, quietlane {commit.strip() or 'unknown'}"
    )


if __name__ == "__main__":
    main()
