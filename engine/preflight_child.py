"""Runs inside the engine's own interpreter: asks the installed SGLang about one configuration after another.

Not imported by quietlane: :mod:`engine.preflight_process` starts this file with the engine's Python, where none of our
packages exist. Standard library only, until SGLang is imported.

Protocol, a JSON object a line. First comes one line on standard output: ``{"ready": true, "version", "flags"}``, or
``{"failed": "..."}``. Then, for each request ``{"id", "arguments", "environment", "timeout_s"}`` on standard input, one
answer ``{"id", "decision", ...}``: ``accepted`` with ``resolved``, ``rejected`` with ``words``, or ``undecided`` with
``words`` where it is not SGLang that decided. The end of standard input ends this process.

SGLang is imported once. Each request is answered by a fork, so that nothing that resolving one configuration leaves
behind (environment, logging, caches) is seen by the next. A fork that uses CUDA needs a parent that has not, so the
parent never does.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import dataclasses
import difflib
import importlib
import json
import os
import re
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
CUDA_NOT_INITIALISED = 3  # CUresult of any call before cuInit
LONGEST_OUTPUT = 64_000  # bytes of a fork's output that are looked at, from its end
WARM_UP_BUDGET_S = 10.0  # the first answer waits for the warm-up only if it is this early
SGLANG_NAME = re.compile(rb"\bSGL(?:ANG)?_[A-Z0-9_]+\b")


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when the thread that started it ends, whatever ended that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def cuda_is_initialised() -> bool:
    """Whether this process has called ``cuInit``, by whatever way: from then on its forks cannot use CUDA."""
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return False
    if "libcuda.so" not in mapped:
        return False
    count = ctypes.c_int()
    return ctypes.CDLL("libcuda.so.1").cuDeviceGetCount(ctypes.byref(count)) != CUDA_NOT_INITIALISED


class Installed:
    """The installed SGLang: its version, its flags, the variables it knows, and its decision on a configuration."""

    def __init__(self) -> None:
        # Counting GPUs must go through NVML: the other way initialises CUDA in the parent of all forks.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        import sglang  # noqa: PLC0415 - the import is the work
        from sglang.srt.server_args import ServerArgs, prepare_server_args  # noqa: PLC0415

        self.package = Path(sglang.__file__).parent
        self.version = str(getattr(sglang, "__version__", "unknown"))
        self.prepare = prepare_server_args
        with contextlib.suppress(ImportError):  # newer versions and forks: flags and rules of plug-ins
            importlib.import_module("sglang.srt.plugins").load_plugins()
        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        self.flags = sorted(name for action in parser._actions for name in action.option_strings)
        self._registered = _registered_variables()
        self._in_sources: set[str] | None = None

    def resolve(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Everything that a launch decides before any weight is read; raises as the launch would."""
        record = self.prepare(list(arguments))
        if hasattr(record, "resolve_once"):  # 0.5.23 parses first and resolves later; older versions do both at once
            record.resolve_once()
        if hasattr(record, "check_server_args"):
            record.check_server_args()
        if hasattr(record, "resolved_dict"):
            return record.resolved_dict()
        return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}

    def unknown_variables(self, names: Sequence[str]) -> dict[str, str]:
        """Those of ``names`` that look like SGLang's and stand nowhere in this version, to the likeliest other."""
        suspects = [name for name in names if re.match("SGL(ANG)?_", name) and name not in self._registered]
        if suspects and self._in_sources is None:
            self._in_sources = _variables_in_sources(self.package)
        known = self._registered | (self._in_sources or set())
        begun = tuple(name for name in known if name.endswith("_"))  # the rest is put together in the source
        unknown = [name for name in suspects if name not in known and not name.startswith(begun)]
        return {name: _likeliest(name, known.difference(begun)) for name in unknown}


def _likeliest(name: str, known: set[str]) -> str:
    """The known variable that was probably meant; empty where none is near."""
    beginning = name.index("_") + 1  # which all share
    others = {other[beginning:]: other for other in known if other.startswith(name[:beginning])}
    return next((others[match] for match in difflib.get_close_matches(name[beginning:], others, 1, 0.75)), "")


def _registered_variables() -> set[str]:
    """The variables of ``sglang.srt.environ``, in versions that have it."""
    try:
        environ = importlib.import_module("sglang.srt.environ")
    except ImportError:
        return set()
    return {name for name in dir(getattr(environ, "Envs", None)) if re.match("SGL(ANG)?_", name)}


def _variables_in_sources(package: Path) -> set[str]:
    """Every such name that stands in the package's sources (about a second, once)."""
    found: set[bytes] = set()
    for source in package.rglob("*.py"):
        with contextlib.suppress(OSError):
            found.update(SGLANG_NAME.findall(source.read_bytes()))
    return {name.decode() for name in found}


def decide(installed: Installed, arguments: Sequence[str]) -> dict[str, Any]:
    """SGLang's decision, in this process; what argparse says is left on standard error."""
    try:
        resolved = installed.resolve(arguments)
    except SystemExit as ended:
        return {"decision": "rejected", "words": ended.code if isinstance(ended.code, str) else None}
    except Exception as error:
        words = str(error).strip()
        if "Cannot re-initialize CUDA in forked subprocess" in words:
            return {"decision": "undecided", "words": words}
        return {"decision": "rejected", "words": f"{type(error).__name__}: {words}" if words else _bare(error)}
    return {"decision": "accepted", "resolved": resolved}


def _bare(error: Exception) -> str:
    """An exception without a text: the line of SGLang that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return type(error).__name__
    last = frames[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {_statement(last)}"


def _statement(frame: traceback.FrameSummary) -> str:
    """The whole statement that a frame stands in, on one line."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        around = [
            node
            for node in ast.walk(ast.parse(Path(frame.filename).read_text()))
            if isinstance(node, ast.stmt) and node.lineno <= (frame.lineno or 0) <= (node.end_lineno or 0)
        ]
        if around:
            return ast.unparse(max(around, key=lambda node: node.lineno)).replace("\n", " ")
    return frame.line or ""


def words_of_argparse(output: str) -> str:
    """The error that argparse printed, without the usage before it."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    for index in range(len(lines) - 1, -1, -1):
        _, found, words = lines[index].partition(": error: ")
        if found:
            return " ".join([words, *lines[index + 1 :]]).strip()
    return lines[-1].strip() if lines else "it ended without a word"


class Fork:
    """One request, answered in a child process of its own with the request's environment."""

    def __init__(self, installed: Installed, request: dict[str, Any]) -> None:
        self.installed = installed
        self.request = request

    def answer(self) -> tuple[dict[str, Any], list[str]]:
        """(the answer, SGLang's modules that the child imported on the way)."""
        with tempfile.TemporaryFile() as output:
            read_end, write_end = os.pipe()
            helper = os.getpid()
            child = os.fork()
            if child == 0:
                os.close(read_end)
                self._work(helper, write_end, output.fileno())
            os.close(write_end)
            line = self._await(read_end, float(self.request.get("timeout_s", 30.0)))
            with contextlib.suppress(OSError):  # the child, and what it may have started
                os.killpg(child, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            output.seek(max(0, output.seek(0, os.SEEK_END) - LONGEST_OUTPUT))
            said = output.read().decode(errors="replace")
        if line is None:
            seconds = self.request.get("timeout_s", 30.0)
            return {"decision": "undecided", "words": f"SGLang did not decide within {seconds:g} s"}, []
        if not line:
            return {"decision": "undecided", "words": _ended(status)}, []
        answer = json.loads(line)
        modules = answer.pop("modules", [])
        if answer["decision"] == "rejected" and not answer.get("words"):
            answer["words"] = words_of_argparse(said)
        return answer, modules

    def _work(self, helper: int, write_end: int, output: int) -> NoReturn:
        status = 1
        try:
            os.setpgid(0, 0)
            end_with_parent(helper)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ.update(self.request["environment"])
            before = set(sys.modules)
            answer = decide(self.installed, self.request["arguments"])
            answer["modules"] = [name for name in sys.modules if name.startswith("sglang.") and name not in before]
            sys.stdout.flush()
            sys.stderr.flush()
            with os.fdopen(write_end, "w") as pipe:
                pipe.write(json.dumps(answer, default=repr) + "\n")
            status = 0
        finally:
            os._exit(status)

    @staticmethod
    def _await(read_end: int, timeout_s: float) -> bytes | None:
        """The child's line; empty when it ended without one, ``None`` when the time is over."""
        deadline = time.monotonic() + timeout_s
        received = b""
        try:
            while not received.endswith(b"\n"):
                ready, _, _ = select.select([read_end], [], [], max(0.0, deadline - time.monotonic()))
                if not ready:
                    return None
                part = os.read(read_end, 1 << 16)
                if not part:
                    return b""
                received += part
        finally:
            os.close(read_end)
        return received


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"SGLang's argument code was ended by signal {os.WTERMSIG(status)}"
    return f"SGLang's argument code ended with exit status {os.waitstatus_to_exitcode(status)} and no answer"


def warm_up(modules: Sequence[str], at_most: int | None) -> int | None:
    """Import here what a fork needed, in its order, so that the next fork finds it.

    Returns the index of the module that initialised CUDA, if one did: this process is of no use from then on.
    """
    for index, name in enumerate(modules[:at_most]):
        with contextlib.suppress(Exception):  # the fork went on without it, too
            importlib.import_module(name)
        if cuda_is_initialised():
            return index
    return None


def requests() -> Iterator[dict[str, Any]]:
    """The lines of standard input, read without a buffer: what is not read yet survives beginning anew."""
    line = b""
    while True:
        part = os.read(0, 1)
        if not part:
            return
        if part == b"\n":
            yield json.loads(line)
            line = b""
        else:
            line += part


class Answers:
    """Where the answers go: standard output as it was at the start, out of reach of whatever SGLang prints."""

    def __init__(self, descriptor: int | None) -> None:
        if descriptor is None:
            descriptor = os.dup(1)
            os.set_inheritable(descriptor, True)
            os.dup2(2, 1)
        self.descriptor = descriptor

    def say(self, content: dict[str, Any]) -> None:
        """Write one line, whole."""
        rest = json.dumps(content).encode() + b"\n"
        while rest:
            rest = rest[os.write(self.descriptor, rest) :]


def serve(installed: Installed, answers: Answers, parent: int, begin: float, warm_up_at_most: int | None) -> None:
    """Answer until standard input ends; after the first answer, warm up (before it, where there is time)."""
    warm = False
    for request in requests():
        answer, modules = Fork(installed, request).answer()
        answer.update(id=request["id"], unknown_variables=installed.unknown_variables(list(request["environment"])))
        first = bool(modules) and not warm
        hold = first and time.monotonic() - begin < WARM_UP_BUDGET_S
        if not hold:
            answers.say(answer)
        spoilt_by = warm_up(modules, warm_up_at_most) if first else None
        warm = warm or first
        if hold:
            answers.say(answer)
        if spoilt_by is not None:  # begin anew, and stop before that module
            again = ["--parent", str(parent), "--answers", str(answers.descriptor), "--warm-up-at-most", str(spoilt_by)]
            os.execv(sys.executable, [sys.executable, sys.argv[0], *again])


def main() -> int:
    """Import SGLang, then answer until standard input ends."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--parent", type=int, required=True, help="process that this one must not outlive")
    parser.add_argument("--answers", type=int, help="descriptor of the answers, where this process begins anew")
    parser.add_argument("--warm-up-at-most", type=int, help="modules that may be imported ahead")
    arguments = parser.parse_args()
    end_with_parent(arguments.parent)
    begin = time.monotonic()
    answers = Answers(arguments.answers)
    try:
        installed = Installed()
    except BaseException as error:
        traceback.print_exc()
        answers.say({"failed": f"{type(error).__name__}: {error}"})
        return 1
    if cuda_is_initialised():
        answers.say({"failed": "importing SGLang initialises CUDA here, and no fork could use it afterwards"})
        return 1
    if arguments.answers is None:
        answers.say({"ready": True, "version": installed.version, "flags": installed.flags})
    serve(installed, answers, arguments.parent, begin, arguments.warm_up_at_most)
    return 0


if __name__ == "__main__":
    sys.exit(main())
