"""The preflight against small packages named ``sglang``, written here: every way in which asking can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine.configuration import Configuration
from engine.preflight import Preflight
from engine.program import Program

# Parses and resolves in two steps, as 0.5.23 does.
TWO_STEPS = """
    import argparse, os, sys, time

    class ServerArgs:
        @staticmethod
        def add_cli_args(parser):
            parser.add_argument("--model-path", required=True)
            parser.add_argument("--algorithm")
            parser.add_argument("--steps", type=int)
            parser.add_argument("--cuda-graph-max-bs-decode", type=int)
            parser.add_argument("--cuda-graph-max-bs-prefill", type=int)
            parser.add_argument("--random-seed", type=int)
            parser.add_argument("--behave")

        def resolve_once(self):
            behave = self.asked.pop("behave")
            if behave == "sleep":
                time.sleep(60)
            elif behave == "segfault":
                os.kill(os.getpid(), 11)
            elif behave == "bare":
                assert self.asked["steps"] is not None
            elif behave == "print":
                print("a line that is no answer", flush=True)
                os.write(1, b"{}\\n")
            elif behave == "environment":
                self.asked["seen"] = os.environ.get("NCCL_PROTO")
                os.environ["SET_BY_RESOLUTION"] = "1"
            elif behave == "leftover":
                self.asked["seen"] = os.environ.get("SET_BY_RESOLUTION")
            elif behave == "cuda":
                raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. Use spawn")
            elif behave == "lazy":
                from sglang.srt import lazy
                self.asked["lazy"] = lazy.imported_by
            elif behave:
                raise ValueError(behave)
            if self.asked["algorithm"] == "NEXTN":
                self.asked["algorithm"] = "EAGLE"
            if self.asked["random_seed"] is None:
                self.asked["random_seed"] = time.time_ns()

        def resolved_dict(self):
            return {**self.asked, "port": os.getpid(), "an_object": object}

    def prepare_server_args(argv):
        parser = argparse.ArgumentParser(prog="sglang serve")
        ServerArgs.add_cli_args(parser)
        record = ServerArgs()
        record.asked = vars(parser.parse_args(argv))
        return record
"""

# Rewrites its own attributes while it is made, as 0.5.14 and 0.5.17 do.
ONE_STEP = """
    import argparse, dataclasses

    @dataclasses.dataclass
    class ServerArgs:
        model_path: str
        algorithm: str = None

        def __post_init__(self):
            if self.algorithm == "NEXTN":
                self.algorithm = "EAGLE"

        @staticmethod
        def add_cli_args(parser):
            parser.add_argument("--model-path")
            parser.add_argument("--algorithm")

        def check_server_args(self):
            assert self.model_path != "bad", "a bad model"

    def prepare_server_args(argv):
        parser = argparse.ArgumentParser()
        ServerArgs.add_cli_args(parser)
        return ServerArgs(**vars(parser.parse_args(argv)))
"""

ENVIRON = """
    class Envs:
        SGLANG_KNOWN_BY_REGISTRY = 1
"""

Make = Callable[..., Preflight]


@pytest.fixture
def make(tmp_path: Path):
    """Starts a preflight over a package that is written for it."""
    started: list[Preflight] = []

    def start(server_args: str = TWO_STEPS, *, base: tuple[str, ...] = (), **options: float) -> Preflight:
        package = tmp_path / "sglang"
        (package / "srt").mkdir(parents=True)
        (package / "__init__.py").write_text('__version__ = "9.9.9"\n')
        (package / "srt" / "__init__.py").write_text('import os\nVALUE = os.environ.get("SGLANG_IN_SOURCES")\n')
        (package / "srt" / "server_args.py").write_text(textwrap.dedent(server_args))
        (package / "srt" / "environ.py").write_text(textwrap.dedent(ENVIRON))
        (package / "srt" / "lazy.py").write_text("import os\nimported_by = os.getpid()\n")
        program = Program((sys.executable, "-m", "sglang.launch_server", *base), {"PYTHONPATH": str(tmp_path)})
        preflight = Preflight(program, **options)
        started.append(preflight)
        preflight.start()
        return preflight

    yield start
    for preflight in started:
        preflight.close()


def asked(environment: dict[str, str] | None = None, **flags: str | int) -> Configuration:
    names = {f"--{name.replace('_', '-')}": value for name, value in flags.items()}
    return Configuration({"--model-path": "m", **names}, environment or {})


def test_an_accepted_configuration_comes_back_resolved(make: Make) -> None:
    preflight = make()
    answer = preflight.check(asked(algorithm="NEXTN"))
    assert answer.accepted
    assert answer.rejection is None
    assert answer.warnings == ()
    assert answer.resolved is not None
    assert answer.resolved["algorithm"] == "EAGLE"
    assert preflight.version == "9.9.9"
    assert "--cuda-graph-max-bs-decode" in preflight.known_flags()


def test_configurations_that_resolve_alike_share_their_identity(make: Make) -> None:
    preflight = make()
    first, again, other = (preflight.check(asked(algorithm=name)) for name in ("NEXTN", "EAGLE", "NGRAM"))
    assert first.identity == again.identity != other.identity


def test_a_seed_that_is_asked_for_is_part_of_the_identity_and_a_drawn_one_is_not(make: Make) -> None:
    preflight = make()
    assert preflight.check(asked()).identity == preflight.check(asked()).identity
    assert preflight.check(asked(random_seed=1)).identity != preflight.check(asked(random_seed=2)).identity


def test_the_environment_is_part_of_the_identity(make: Make) -> None:
    preflight = make()
    assert preflight.check(asked({"NCCL_PROTO": "LL"})).identity != preflight.check(asked()).identity


def test_flags_of_the_program_itself_are_checked_too(make: Make) -> None:
    answer = make(base=("--algorithm", "NEXTN")).check(asked())
    assert answer.resolved is not None
    assert answer.resolved["algorithm"] == "EAGLE"


def test_an_unknown_flag_is_rejected_in_the_words_of_argparse(make: Make) -> None:
    answer = make().check(asked(no_such_flag=1))
    assert not answer.accepted
    assert answer.rejection == "unrecognized arguments: --no-such-flag 1"


def test_a_renamed_flag_is_explained_with_its_new_name(make: Make) -> None:
    answer = make().check(asked(cuda_graph_max_bs=8))
    assert answer.rejection is not None
    assert "ambiguous option: --cuda-graph-max-bs" in answer.rejection
    assert "--cuda-graph-max-bs is now --cuda-graph-max-bs-decode" in answer.rejection


def test_an_exception_is_a_rejection_with_its_type_and_text(make: Make) -> None:
    answer = make().check(asked(behave="topk and page size do not go together"))
    assert answer.rejection == "ValueError: topk and page size do not go together"
    assert answer.resolved is None


def test_an_assertion_without_a_text_is_quoted_from_the_source(make: Make) -> None:
    answer = make().check(asked(behave="bare"))
    assert answer.rejection is not None
    assert "AssertionError at server_args.py:" in answer.rejection
    assert "assert self.asked['steps'] is not None" in answer.rejection


def test_what_sglang_prints_is_not_taken_for_an_answer(make: Make) -> None:
    preflight = make()
    assert preflight.check(asked(behave="print")).accepted
    assert preflight.check(asked()).accepted


def test_each_configuration_sees_its_own_environment_and_nothing_of_the_one_before(make: Make) -> None:
    preflight = make()
    first = preflight.check(asked({"NCCL_PROTO": "LL"}, behave="environment"))
    second = preflight.check(asked(behave="leftover"))
    assert first.resolved is not None
    assert second.resolved is not None
    assert first.resolved["seen"] == "LL"
    assert second.resolved["seen"] is None


def test_modules_that_one_check_imported_are_there_for_the_next(make: Make) -> None:
    preflight = make()
    preflight.check(asked(behave="lazy"))
    answers = [preflight.check(asked(behave="lazy")) for _ in range(2)]
    importers = [answer.resolved["lazy"] for answer in answers if answer.resolved]
    assert preflight._process is not None
    assert importers == [preflight._process.pid] * 2


def test_a_module_that_initialises_cuda_is_never_imported_ahead(make: Make) -> None:
    # the package says so in place of the driver: from `lazy` on, this process is of no use for forks
    spoilt = """
import __main__, sys
__main__.cuda_is_initialised = lambda: "sglang.srt.lazy" in sys.modules
"""
    preflight = make(spoilt + textwrap.dedent(TWO_STEPS))
    answers = [preflight.check(asked(behave="lazy")) for _ in range(3)]
    assert preflight._process is not None
    importers = [answer.resolved["lazy"] for answer in answers if answer.resolved]
    assert len(set(importers)) == 3
    assert preflight._process.pid not in importers


def test_a_version_that_resolves_while_parsing_is_read_from_its_attributes(make: Make) -> None:
    preflight = make(ONE_STEP)
    answer = preflight.check(asked(algorithm="NEXTN"))
    assert answer.resolved == {"model_path": "m", "algorithm": "EAGLE"}
    assert answer.identity == preflight.check(asked(algorithm="EAGLE")).identity
    assert preflight.check(asked(model_path="bad")).rejection == "AssertionError: a bad model"


def test_variables_that_the_version_does_not_know_are_warned_of(make: Make) -> None:
    names = ("SGLANG_KNOWN_BY_REGISTRY", "SGLANG_IN_SOURCES", "SGLANG_IN_SOURCE", "SGLANG_QQ", "NCCL_PROTO")
    answer = make().check(asked(dict.fromkeys(names, "1")))
    assert answer.accepted
    assert answer.warnings == (
        "SGLang 9.9.9 knows no variable SGLANG_IN_SOURCE: did you mean SGLANG_IN_SOURCES?",
        "SGLang 9.9.9 knows no variable SGLANG_QQ: it has no effect; take it out, or check the version.",
    )


def test_a_check_that_takes_too_long_is_ended_and_does_not_block_the_launch(make: Make) -> None:
    preflight = make(check_timeout_s=0.3)
    begin = time.monotonic()
    answer = preflight.check(asked(behave="sleep"))
    assert time.monotonic() - begin < 5
    assert answer.accepted
    assert answer.resolved is None
    assert answer.warnings == ("Not decided by SGLang before the launch: SGLang did not decide within 0.3 s.",)
    assert preflight.available
    assert preflight.check(asked()).resolved is not None


def test_argument_code_that_crashes_is_no_rejection(make: Make) -> None:
    answer = make().check(asked(behave="segfault"))
    assert answer.accepted
    assert "ended by signal 11" in answer.warnings[0]


def test_cuda_that_a_fork_cannot_use_is_no_rejection(make: Make) -> None:
    answer = make().check(asked(behave="cuda"))
    assert answer.accepted
    assert "Cannot re-initialize CUDA" in answer.warnings[0]


def test_a_helper_that_dies_is_noticed_and_blocks_nothing(make: Make) -> None:
    preflight = make()
    assert preflight.check(asked()).accepted
    assert preflight._process is not None
    assert preflight._process.pid is not None
    os.kill(preflight._process.pid, signal.SIGKILL)
    answer = preflight.check(asked())
    assert answer.accepted
    assert "ended with exit status -9" in answer.warnings[0]
    assert not preflight.available
    assert preflight.unavailable_because is not None
    assert preflight.known_flags() == set()


def test_an_interpreter_without_sglang_is_unavailable(tmp_path: Path) -> None:
    program = Program((sys.executable, "-m", "sglang.launch_server"), {"PYTHONPATH": str(tmp_path)})
    with Preflight(program) as preflight:
        answer = preflight.check(asked())
        assert answer.accepted
        assert not preflight.available
        assert "No module named 'sglang'" in (preflight.unavailable_because or "")


def test_a_missing_interpreter_is_unavailable() -> None:
    with Preflight(Program(("/no/such/python", "-m", "sglang.launch_server"))) as preflight:
        assert preflight.check(asked()).warnings == (
            "Not checked by SGLang before the launch: /no/such/python cannot be started: No such file or directory.",
        )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (Program((sys.executable, "-m", "rehearsal.launch_server"), rehearsal=True), "the rehearsal engine"),
        (Program((sys.executable, "-m", "vllm.server")), "the module vllm.server is not SGLang's server"),
        (Program(("docker", "run", "sglang")), "does not start SGLang as `python -m sglang.launch_server`"),
    ],
)
def test_a_program_that_is_no_sglang_is_unavailable_with_a_reason(program: Program, reason: str) -> None:
    with Preflight(program) as preflight:
        assert not preflight.available
        assert reason in (preflight.unavailable_because or "")
        assert preflight.check(asked()).accepted


def test_an_import_that_takes_too_long_is_given_up(make: Make) -> None:
    preflight = make("import time\ntime.sleep(60)", start_timeout_s=0.5)
    assert preflight.available
    assert preflight.check(asked()).accepted
    assert preflight.unavailable_because == "SGLang's argument code was not imported within 0.5 s"


def test_closing_ends_the_helper_and_the_fork_at_once(make: Make) -> None:
    preflight = make()
    preflight.check(asked())
    assert preflight._process is not None
    helper = psutil.Process(preflight._process.pid)
    begin = time.monotonic()
    preflight.close()
    assert time.monotonic() - begin < 2
    assert not helper.is_running()


def test_nothing_is_left_when_our_process_is_killed(tmp_path: Path, make: Make) -> None:
    make()  # writes the package
    script = textwrap.dedent(f"""
        import sys, threading
        from engine.configuration import Configuration
        from engine.preflight import Preflight
        from engine.program import Program
        command = ({sys.executable!r}, "-m", "sglang.launch_server")
        preflight = Preflight(Program(command, {{"PYTHONPATH": {str(tmp_path)!r}}}))
        preflight.start()
        preflight.known_flags()
        print(preflight._process.pid, flush=True)
        preflight.check(Configuration({{"--model-path": "m", "--behave": "sleep"}}))
    """)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        helper = psutil.Process(int(ours.stdout.readline()))
        deadline = time.monotonic() + 10
        while not helper.children() and time.monotonic() < deadline:
            time.sleep(0.02)
        left = [helper, *helper.children()]
        assert len(left) == 2
        ours.kill()
    _, alive = psutil.wait_procs(left, timeout=5)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
