"""Compares the preflight's decisions with those of real launches.

    python benchmarks/preflight_agreement.py ENGINE_PYTHON [--results FILE.json] [--report FILE.md] [--only N]

Every configuration of ``preflight_configurations.yaml`` is put to :class:`engine.preflight.Preflight` and then launched
for real on the CPU. A launch is ended as soon as it has decided: SGLang prints ``server_args=`` once everything is
resolved and validated, before any process is spawned or weight is read, or it exits. Results are written one by one,
and a second run goes on where the first one stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from engine.configuration import Configuration
from engine.cpu.program import cpu_program
from engine.cpu.small_model import unpack
from engine.preflight import Preflight
from engine.program import Program

CONFIGURATIONS = Path(__file__).with_name("preflight_configurations.yaml")
DECIDED = re.compile(r"\bserver_args=")
LAUNCH_TIMEOUT_S = 600
ERROR = re.compile(r"^(?:[a-z ]+: error: .*|[A-Za-z_.]*(?:Error|Exception)\b.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One configuration, and what is expected of it: ``None`` for acceptance, else words of the rejection."""

    name: str
    configuration: Configuration
    rejected: str | None


@dataclass(frozen=True)
class Outcome:
    """What both said of one case; seconds are wall time."""

    name: str
    preflight_accepted: bool
    preflight_words: str
    preflight_s: float
    launch_accepted: bool
    launch_words: str
    launch_s: float

    @property
    def agree(self) -> bool:
        """The same decision."""
        return self.preflight_accepted == self.launch_accepted


def cases(model: Path) -> list[Case]:
    """All configurations of the file, for the model in ``model``."""
    table = yaml.safe_load(CONFIGURATIONS.read_text())
    found = []
    for entry in table["configurations"]:
        speculation = table["speculation"] if entry.get("speculation") else {}
        flags = {"--model-path": str(model), **table["base"], **speculation, **entry.get("flags", {})}
        found.append(Case(entry["name"], Configuration(flags, entry.get("environment", {})), entry.get("rejected")))
    return found


def launch(program: Program, configuration: Configuration, log: Path, port: int) -> tuple[bool, str, float]:
    """(accepted, the error or nothing, seconds until decided) of a real launch."""
    begin = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            program.argv(configuration, port),
            env=program.environ(configuration),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        while time.monotonic() - begin < LAUNCH_TIMEOUT_S:
            ended = process.poll() is not None
            said = log.read_text(errors="replace")
            if DECIDED.search(said):
                return True, "", time.monotonic() - begin
            if ended:
                errors = ERROR.findall(said)
                return False, errors[-1] if errors else said.strip()[-200:], time.monotonic() - begin
            time.sleep(0.1)
        raise SystemExit(f"no decision within {LAUNCH_TIMEOUT_S} s; see {log}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def compare(
    program: Program, preflight: Preflight, wanted: list[Case], results: Path
) -> Iterator[tuple[Outcome, list[Outcome]]]:
    """Each case that is not yet in ``results``, put to both: (its outcome, all outcomes so far)."""
    outcomes = [Outcome(**entry) for entry in json.loads(results.read_text())] if results.exists() else []
    done = {outcome.name for outcome in outcomes}
    for index, case in enumerate(wanted):
        if case.name not in done:
            begin = time.monotonic()
            answer = preflight.check(case.configuration)
            asked_s = time.monotonic() - begin
            if not preflight.available:
                raise SystemExit(preflight.unavailable_because)
            log = results.with_suffix(f".{index}.log")
            accepted, words, launch_s = launch(program, case.configuration, log, 32600 + index)
            log.unlink()
            outcome = Outcome(
                case.name, answer.accepted, answer.rejection or "", asked_s, accepted, words.strip(), launch_s
            )
            outcomes.append(outcome)
            results.write_text(json.dumps([asdict(each) for each in outcomes], indent=1))
            yield outcome, outcomes


def report(outcomes: list[Outcome], wanted: int, version: str | None, details: dict[str, Any]) -> str:
    """The result as a page."""

    def cell(text: str) -> str:
        return text.replace("|", "\\|").replace("\n", " ")[:160]

    agreeing = sum(outcome.agree for outcome in outcomes)
    accepted = sum(outcome.launch_accepted for outcome in outcomes)
    check_s = statistics.median(outcome.preflight_s for outcome in outcomes)
    launch_s = statistics.median(outcome.launch_s for outcome in outcomes)
    lines = [
        f"# Preflight against real launches, SGLang {version} on a CPU",
        "",
        f"{agreeing} of {len(outcomes)} decisions are those of a real launch ({accepted} accepted, "
        f"{len(outcomes) - accepted} rejected; {wanted - len(outcomes)} of {wanted} not yet launched). "
        f"A check took {check_s:.2f} s (median), "
        f"a launch {launch_s:.0f} s until it had decided.",
        "",
        *[f"- {name}: {value}" for name, value in details.items()],
        "",
        "| configuration | preflight | launch | preflight's words | launch's words |",
        "|---|---|---|---|---|",
    ]
    decision = {True: "accepted", False: "rejected"}
    for outcome in outcomes:
        name = cell(outcome.name) + ("" if outcome.agree else " **(differ)**")
        decisions = f"{decision[outcome.preflight_accepted]} | {decision[outcome.launch_accepted]}"
        words = f"{cell(outcome.preflight_words)} | {cell(outcome.launch_words)}"
        lines.append(f"| {name} | {decisions} | {words} |")
    return "\n".join(lines) + "\n"


def _python_version(python: Path) -> str:
    return subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    """Compare, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine_python", type=Path)
    parser.add_argument("--models", type=Path, help="folder that the small model is unpacked into")
    parser.add_argument("--results", type=Path, default=Path("preflight-agreement.json"))
    parser.add_argument("--report", type=Path, help="page that is written anew after each configuration")
    parser.add_argument("--only", type=int, help="the first so many configurations")
    arguments = parser.parse_args()
    program = cpu_program(arguments.engine_python)
    wanted = cases(unpack(arguments.models))[: arguments.only]
    agree = True
    with Preflight(program, start_timeout_s=600, check_timeout_s=120) as preflight:
        details = {
            "date": datetime.now(UTC).date().isoformat(),
            "command": "`python benchmarks/preflight_agreement.py ENGINE_PYTHON --report FILE`",
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[0]:.0f} at the start",
            "versions": f"SGLang {preflight.version}, {_python_version(arguments.engine_python)}",
        }
        for outcome, outcomes in compare(program, preflight, wanted, arguments.results):
            agree = agree and outcome.agree
            decision = "agree" if outcome.agree else "DIFFER"
            print(f"{decision}: {outcome.name} ({outcome.launch_s:.0f} s)", file=sys.stderr, flush=True)
            page = report(outcomes, len(wanted), preflight.version, details)
            if arguments.report:
                arguments.report.write_text(page)
    raise SystemExit(0 if agree else 1)


if __name__ == "__main__":
    main()
