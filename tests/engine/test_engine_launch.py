"""An engine is started, watched and ended as one process tree."""

import http.server
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from launching import failure_of, fake_engine, fake_program, gone, kill, marked, ready, within

import engine.gpus
from engine.failure import EngineFailed
from engine.launch import LaunchError
from engine.locks import LOCKS_VARIABLE, GpuLocks, HeldElsewhere
from engine.process_tree import environment_of
from engine.program import Program
from engine.stalls import Patience


@pytest.fixture(autouse=True)
def _locks_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOCKS_VARIABLE, str(tmp_path / "locks"))


def test_an_engine_starts_becomes_ready_tells_what_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path)) as running:
        assert running.url == f"http://127.0.0.1:{running.port}"
        assert running.command[-4:] == ["--host", "127.0.0.1", "--port", str(running.port)]
        assert running.server_info() == {"version": "0.0.0", "tp_size": 2}
        assert running.pid in running.process_ids()
        assert len(running.process_ids()) == 3
        assert running.progress().ready
        assert "ready to roll" in running.log_path.read_text()
        running.check()
    assert running.teardown is not None
    assert running.teardown.port_free
    assert running.teardown.memory_free
    assert running.teardown.tree_gone
    assert running.teardown.survivors_killed == 0
    assert running.stop() is running.teardown
    assert marked(tmp_path) == []


def test_an_older_engine_is_asked_by_its_older_address(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path, {"--old-info": True})) as running:
        assert running.server_info()["tp_size"] == 2


def test_an_engine_is_not_ready_while_it_answers_503(tmp_path: Path) -> None:
    with fake_engine(tmp_path, {"--warm-s": 0.7, "--load-s": 0}) as starting:
        began = time.monotonic()
        starting.start()
        snapshots = list(starting.starting())
        assert time.monotonic() - began >= 0.7
        assert [snapshot.ready for snapshot in snapshots][-1]
        assert not any(snapshot.ready for snapshot in snapshots[:-1])


def test_an_engine_whose_log_never_says_ready_becomes_ready_by_two_healthy_answers(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path, {"--no-ready-line": True})) as running:
        assert "ready to roll" not in running.log_path.read_text()


def test_a_stranger_on_the_port_is_not_mistaken_for_the_engine(tmp_path: Path) -> None:
    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with fake_engine(tmp_path, {"--hang": True}, start_timeout_s=2.6) as starting:
        starting.start()
        with http.server.ThreadingHTTPServer(("127.0.0.1", starting.port), Stranger) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            with pytest.raises(EngineFailed, match="not ready after"):
                list(starting.starting())
            server.shutdown()
        assert starting.teardown is not None
        assert starting.teardown.failure is not None
        assert f"port {starting.port} is not free" in starting.teardown.failure.cause
    assert marked(tmp_path) == []


def test_a_death_is_noticed_within_a_second(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path)) as running:
        kill(running.pid)
        began = time.monotonic()
        assert failure_of(running) is not None
        assert time.monotonic() - began < 1.0
    assert marked(tmp_path) == []


def test_an_engine_that_ends_while_it_loads_fails_with_the_end_of_its_log(tmp_path: Path) -> None:
    with (
        fake_engine(tmp_path, {"--die-loading": True, "--exit-status": 3}) as starting,
        pytest.raises(EngineFailed) as failed,
    ):
        ready(starting)
    assert "3" in failed.value.failure.cause
    assert "no such model" in failed.value.failure.evidence


def test_the_first_fatal_line_ends_the_wait_and_the_tree_within_two_seconds(tmp_path: Path) -> None:
    with fake_engine(tmp_path, {"--fatal-rank": 1, "--load-s": 0.3, "--ignore-term": True}) as starting:
        starting.start()
        assert within(5, lambda: len(marked(tmp_path)) == 3)
        began = time.monotonic()
        with pytest.raises(EngineFailed) as failed:
            list(starting.starting())
        assert time.monotonic() - began < 2.0
        assert marked(tmp_path) == []
    assert failed.value.failure.rank == "TP1"
    assert "CUDA out of memory" in failed.value.failure.evidence


def test_an_engine_that_takes_too_long_fails_and_is_ended(tmp_path: Path) -> None:
    with (
        fake_engine(tmp_path, {"--hang": True}, start_timeout_s=0.5) as starting,
        pytest.raises(EngineFailed, match="not ready after"),
    ):
        ready(starting)
    assert marked(tmp_path) == []


def test_a_stalled_start_is_ended_with_its_evidence_taken(tmp_path: Path) -> None:
    patience = Patience(phase_s=0.2, quiet_s=0.6, look_s=0.1)
    with fake_engine(tmp_path, {"--hang": True}, patience=patience) as starting:
        with pytest.raises(EngineFailed, match="stalled: no output"):
            ready(starting)
        assert {"stacks", "gpus", "kernel log", "sockets", "last lines", "processes"} <= set(starting.evidence)
        assert "Init torch distributed" in starting.evidence["last lines"]
    assert marked(tmp_path) == []


@pytest.mark.parametrize("manners", ["--ignore-term", "--own-session", "--grandchild"])
def test_whatever_a_rank_does_it_does_not_survive_the_stop(tmp_path: Path, manners: str) -> None:
    flags = {manners: True, "--ignore-term": True, "--ranks": 3}
    running = ready(fake_engine(tmp_path, flags))
    assert len(marked(tmp_path)) >= 4
    teardown = running.stop(grace_s=0.2)
    assert teardown.survivors_killed >= 4
    assert marked(tmp_path) == []


def test_ranks_whose_parent_was_killed_are_ended_too(tmp_path: Path) -> None:
    running = ready(fake_engine(tmp_path, {"--own-session": True, "--ignore-term": True}))
    kill(running.pid)
    assert within(2, lambda: marked(tmp_path) == [])
    running.stop()


def test_a_deleted_log_is_read_on_and_written_again(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path, {"--chatty": True})) as running:
        running.log_path.unlink()
        seen = running._tail.bytes_read if running._tail else 0
        assert within(3, lambda: running.check() or (running._tail is not None and running._tail.bytes_read > seen))
    assert "ready to roll" in running.log_path.read_text()


def test_a_command_that_is_no_program_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="'/no/such/python' is not an executable file"):
        fake_engine(tmp_path, program=Program(("/no/such/python", "-m", "x"), rehearsal=True)).start()
    broken = tmp_path / "python"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(LaunchError, match="cannot be started"):
        fake_engine(tmp_path, program=Program((str(broken),), rehearsal=True)).start()


def test_a_port_in_use_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LaunchError, match=rf"Port {port} is in use by pid {os.getpid()} of "):
            fake_engine(tmp_path, port=port).start()
    assert marked(tmp_path) == []


def test_an_unwritable_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LaunchError, match="cannot be written"):
        fake_engine(tmp_path, log_path=tmp_path / "file" / "engine.log").start()


def test_an_engine_takes_the_lock_of_its_gpus_until_it_is_gone(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path, gpus=(0, 1))):
        with pytest.raises(HeldElsewhere, match=r"GPU 1 is in use by pid"):
            fake_engine(tmp_path / "other", gpus=(1, 2)).start()
        with GpuLocks((2,)):
            pass
    with GpuLocks((0, 1)):
        pass


def test_engines_of_a_search_use_the_locks_that_the_search_holds(tmp_path: Path) -> None:
    with GpuLocks((0,)) as locks:
        with ready(fake_engine(tmp_path, gpus=(0,), locks=locks)):
            pass
        with pytest.raises(HeldElsewhere), GpuLocks((0,)):
            pass


def test_a_real_engine_without_gpus_takes_the_lock_of_the_cpu(tmp_path: Path) -> None:
    program = Program(fake_program().command, {"QUIETLANE_TEST_MARK": str(tmp_path)})
    with ready(fake_engine(tmp_path, program=program)), pytest.raises(HeldElsewhere, match="the CPU of this host"):
        GpuLocks().acquire()


def test_an_engine_sees_only_its_own_gpus(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path, gpus=(2, 5))) as running:
        assert running.pid is not None
        environment = environment_of(running.pid)
        assert environment["CUDA_VISIBLE_DEVICES"] == "2,5"
        assert environment["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


def test_secrets_in_the_environment_are_in_no_command_line_of_ours(tmp_path: Path) -> None:
    program = Program(fake_program().command, {"API_KEY": "very-secret"}, rehearsal=True)
    with ready(fake_engine(tmp_path, program=program)) as running:
        for pid in (running.guard_pid, running.keeper_pid):
            assert "very-secret" not in Path(f"/proc/{pid}/cmdline").read_text()
            assert "API_KEY" not in environment_of(pid or 0)
        assert environment_of(running.pid or 0)["API_KEY"] == "very-secret"


def test_memory_that_does_not_come_back_is_a_failure_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = iter([1.0])
    monkeypatch.setattr("engine.launch.memory_used_gb", lambda gpus: dict.fromkeys(gpus, next(used)))
    monkeypatch.setattr("engine.teardown.COME_BACK_S", 0.1)
    monkeypatch.setattr(
        "engine.teardown.await_memory_free",
        lambda before, limit_s: engine.gpus.await_memory_free(before, 0.1, lambda gpus: dict.fromkeys(gpus, 70.0)),
    )
    running = ready(fake_engine(tmp_path, gpus=(3,)))
    teardown = running.stop()
    assert not teardown.memory_free
    assert teardown.failure is not None
    assert teardown.failure.blame == "environment"
    assert "GPU 3 (69.0 GB)" in teardown.failure.cause


def test_nothing_of_the_tree_is_a_child_of_ours(tmp_path: Path) -> None:
    with ready(fake_engine(tmp_path)) as running:
        assert running.guard_pid is not None
        pids = [*running.process_ids(), running.keeper_pid, running.guard_pid]
    deadline = time.monotonic() + 5  # whoever is the parent of the last ones has yet to reap them
    while not all(gone(pid) for pid in pids if pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert all(gone(pid) for pid in pids if pid)
