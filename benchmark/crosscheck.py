"""The same load by SGLang's own client, ``sglang.bench_serving``, to check ours against it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmark.plan import Plan
from benchmark.prompt_source import PromptSource
from benchmark.results import Level
from engine.program import Program

_BACKENDS = {
    "/generate": "sglang",
    "/v1/completions": "sglang-oai",
    "/v1/chat/completions": "sglang-oai-chat",
}


def run(
    program: Program,
    url: str,
    level: Level,
    prompts: PromptSource,
    plan: Plan,
    check: Callable[[], None] | None = None,
    *,
    model: str | None = None,
    timeout_s: float = 1800.0,
) -> dict[str, Any]:
    """Measure a level with ``sglang.bench_serving`` of the program's interpreter; its figures as it names them.

    It gets prompts of the same source (fresh ones), as many requests and as long answers. Where it cannot run or says
    nothing, the dictionary holds the one key ``unavailable`` with a sentence. ``model`` is the folder whose tokenizer
    it counts with (left out, it asks the server). ``check`` is called while it runs, and what it raises is raised here.
    """
    if program.rehearsal:
        return {"unavailable": "the rehearsal engine brings no sglang.bench_serving; cross-check with the real SGLang"}
    with tempfile.TemporaryDirectory(prefix="quietlane-crosscheck-") as folder:
        data, output, log = (Path(folder) / name for name in ("prompts.jsonl", "figures.jsonl", "log"))
        _write_prompts(data, level, prompts)
        command = command_line(program, url, level, plan, data, output, model)
        reason = _execute(command, {**os.environ, **program.environment}, log, check, timeout_s)
        return read_figures(output, reason or _last_line(log))


def command_line(
    program: Program, url: str, level: Level, plan: Plan, data: Path, output: Path, model: str | None
) -> list[str]:
    """The command that measures a level with prompts of a file."""
    command = [
        program.interpreter, "-m", "sglang.bench_serving", "--backend", _BACKENDS[plan.endpoint], "--base-url", url,
        "--dataset-name", "custom", "--dataset-path", str(data), "--num-prompts", str(level.requests),
        "--sharegpt-output-len", str(level.output_tokens), "--max-concurrency", str(level.concurrency),
        "--output-file", str(output), "--seed", str(plan.seed), "--warmup-requests", "0", "--disable-tqdm",
    ]  # fmt: skip
    if plan.temperature:
        # Its option --temperature is not in every release; the body of a request is.
        native = plan.endpoint == "/generate"
        sampling = {"temperature": plan.temperature, "max_new_tokens": level.output_tokens}
        sampling["ignore_eos"] = plan.ignore_eos
        extra = {"sampling_params": sampling} if native else {"temperature": plan.temperature}
        command += ["--extra-request-body", json.dumps(extra)]
    if not plan.ignore_eos:
        command.append("--disable-ignore-eos")
    if model:
        command += ["--model", model, "--tokenizer", model]
    return command


def read_figures(output: Path, otherwise: str) -> dict[str, Any]:
    """The last line of the file that it appends to; without any, why it is unavailable."""
    try:
        lines = output.read_text(encoding="utf-8").splitlines()
        figures = json.loads(lines[-1])
    except (OSError, ValueError, IndexError):
        return {"unavailable": f"sglang.bench_serving gave no figures: {otherwise}"}
    if not isinstance(figures, dict) or not figures.get("completed"):
        return {"unavailable": f"sglang.bench_serving completed no request: {otherwise}"}
    return figures


def _write_prompts(path: Path, level: Level, prompts: PromptSource) -> None:
    """The file in the form that its data set ``custom`` reads: conversations of two turns."""
    fresh = prompts.begin(level)
    with path.open("w", encoding="utf-8") as file:
        for index in range(level.requests):
            turns = [{"content": fresh.measured(index).text}, {"content": "an answer"}]
            file.write(json.dumps({"conversations": turns}) + "\n")


def _execute(
    command: list[str], environment: dict[str, str], log: Path, check: Callable[[], None] | None, timeout_s: float
) -> str | None:
    """Run it to its end; a sentence where it did not end well. Its whole process group ends with this call."""
    with log.open("wb") as sink:
        try:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, process_group=0
            )
        except OSError as error:
            return f"{command[0]} cannot be run ({error.strerror}); give the interpreter that has SGLang"
    deadline = time.monotonic() + timeout_s
    try:
        while process.poll() is None:
            if check is not None:
                check()
            if time.monotonic() > deadline:
                return f"it did not end within {timeout_s:g} s"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None if process.returncode == 0 else f"exit status {process.returncode}, {_last_line(log)}"


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it printed nothing"
