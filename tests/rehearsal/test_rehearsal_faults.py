"""Each fault on demand, the chain of failure in the log, and what is left of the processes."""

from __future__ import annotations

import os
import signal
import socket
import time
import urllib.error

import psutil
import pytest

from rehearsal import arguments, faults, memory, resolution, settings
from rehearsal.startup import STAGES


def _gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=5)[1]


def test_a_crashing_rank_ends_everything_as_sglang_does(start):
    engine = start("--tp-size", "4", fault="crash@target graphs:TP3")
    assert engine.exit_status() == -signal.SIGKILL
    log = engine.log
    assert " TP3] Scheduler hit an exception: Traceback (most recent call last):" in log
    assert "Capture cuda graph failed: CUDA error: an illegal memory access was encountered" in log
    assert log.index("Scheduler hit") < log.index(
        "Received sigquit from a child process. It usually means the child failed."
    )
    assert "Uvicorn running" not in log
    assert " TP3] Capture target decode CUDA graph begin." in log


def test_a_killed_rank_is_reported_with_its_exit_code(start):
    engine = start("--tp-size", "4", fault="kill@weights:TP2")
    assert engine.exit_status() == 1
    assert "RuntimeError: Rank 2 scheduler died during initialization (exit code: -9)." in engine.log


def test_a_hanging_rank_lets_the_others_reach_the_same_point_and_no_further(start):
    engine = start("--tp-size", "2", fault="hang@weights:TP1")
    engine.until(lambda: "TP0] Load weight end" in engine.log)
    time.sleep(0.3)
    assert engine.process.poll() is None
    assert "TP1] Load weight begin" in engine.log
    assert "TP1] Load weight end" not in engine.log
    assert "KV Cache is allocated" not in engine.log
    children = engine.children()
    os.kill(engine.process.pid, signal.SIGKILL)
    assert _gone(children)


def test_a_slow_rank_takes_its_factor_longer(start):
    engine = start("--tp-size", "2", fault="slow@mamba and KV cache:TP1:6", REHEARSAL_SPEED="0.05").until_ready()
    assert "TP1] Memory pool end" in engine.log
    stamps = [line for line in engine.log.splitlines() if "Memory pool end" in line]
    assert "TP0" in stamps[0]
    assert "TP1" in stamps[1]


def test_out_of_memory_says_cuda_out_of_memory(start):
    engine = start("--tp-size", "2", fault="oom@target graphs")
    assert engine.exit_status() == -signal.SIGKILL
    assert "Capture cuda graph failed: CUDA out of memory. Tried to allocate" in engine.log
    assert "1. set --mem-fraction-static to a smaller value" in engine.log


def test_garbage_answers_repeat_one_token(start):
    engine = start(fault="garbage", REHEARSAL_TIME_SCALE="20").until_ready()
    asked = {"text": "hello", "sampling_params": {"max_new_tokens": 9, "temperature": 0, "ignore_eos": True}}
    assert engine.json("/generate", asked)["text"] == "!" * 9


def test_nan_kills_the_engine_at_the_first_request(start):
    engine = start(fault="nan").until_ready()
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        engine.ask("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 500, "ignore_eos": True}})
    assert engine.exit_status() == -signal.SIGKILL
    assert "probability tensor contains either `inf`, `nan` or element < 0" in engine.log


def test_it_dies_while_serving_after_so_many_requests(start):
    engine = start("--tp-size", "2", fault="die-serving@2", REHEARSAL_TIME_SCALE="50").until_ready()
    asked = {"text": "hello", "sampling_params": {"max_new_tokens": 2}}
    engine.json("/generate", asked)
    engine.json("/generate", asked)
    with pytest.raises((ConnectionError, urllib.error.URLError)):
        engine.ask("/generate", {"text": "hello", "sampling_params": {"max_new_tokens": 90000, "ignore_eos": True}})
    assert engine.exit_status() == -signal.SIGKILL
    assert "SIGQUIT received. signum=None, frame=None. It usually means one child failed." in engine.log


def test_a_rank_killed_from_outside_while_serving_is_noticed(start):
    engine = start("--tp-size", "2").until_ready()
    engine.children()[1].kill()
    assert engine.exit_status() == -signal.SIGKILL
    assert "crashed with exit code -9. Triggering SIGQUIT for cleanup..." in engine.log


def test_a_deaf_engine_accepts_and_never_answers(start):
    engine = start(fault="deaf")
    engine.until(lambda: "fired up" in engine.log)
    with pytest.raises(TimeoutError):
        engine.ask("/health", timeout=0.5)


def test_sigterm_ends_it_cleanly_with_all_its_ranks(start):
    engine = start("--tp-size", "4").until_ready()
    children = engine.children()
    assert len(children) == 4
    engine.process.terminate()
    assert engine.exit_status() == 0
    assert _gone(children)
    assert "Gracefully exiting... Remaining number of requests 0." in engine.log
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", engine.port))


def test_ranks_die_with_a_killed_parent(start):
    engine = start("--tp-size", "2").until_ready()
    children = engine.children()
    engine.process.kill()
    assert _gone(children)


def test_sigterm_can_be_ignored(start):
    engine = start(fault="ignore-sigterm").until_ready()
    engine.process.terminate()
    time.sleep(0.3)
    assert engine.ask("/ready")[0] == 200


def test_a_port_can_be_kept_and_an_orphan_left(start):
    engine = start(fault="keep-port; orphan").until_ready()
    left = [child for child in engine.children() if os.getsid(child.pid) == child.pid]
    assert len(left) == 2
    engine.process.terminate()
    assert engine.exit_status() == 0
    assert all(process.is_running() for process in left)
    with socket.create_connection(("127.0.0.1", engine.port), timeout=2):
        pass


def test_a_taken_port_is_found_only_after_the_load(start):
    first = start().until_ready()
    second = start("--port", str(first.port))
    assert second.exit_status() == 1
    assert "address already in use" in second.log
    assert "Load weight end" in second.log


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("explode", "'explode' is no fault"),
        ("crash@tea break", "'tea break' is no phase"),
        ("crash@weights:TP9", "rank TP9"),
        ("slow@weights:TP1:much", "'much'"),
        ("die-serving@soon", "wants a count"),
    ],
)
def test_a_fault_that_is_none_is_refused_in_one_sentence(text, named):
    with pytest.raises(faults.FaultError, match="REHEARSAL_FAULT") as refused:
        faults.parse(text, 8)
    assert named in str(refused.value)


def test_faults_are_read_with_stage_rank_factor_and_text():
    crash, slow, port = faults.parse("crash@draft graphs:TP3:ValueError: a: b; slow@kv:TP5:3.5; keep-port", 8)
    assert crash == faults.Fault("crash", "draft graphs", 3, 2.0, "ValueError: a: b")
    assert (slow.stage, slow.rank, slow.number) == ("mamba and KV cache", 5, 3.5)
    assert port.kind == "keep-port"
    assert "ValueError: a: b" in faults.traceback(crash, _planned()[1], 3)


def _planned(*flags: str, model: str = "/m/Qwen3.5-397B-A17B-NVFP4"):
    table = arguments.load_flags("0.5.23")
    asked = arguments.parse(["--model-path", model, "--tp-size", "8", *flags], table)
    args, _ = resolution.resolve(asked, settings.Settings(), {})
    return args, memory.plan(args, settings.Settings())


def _of(*flags: str, environment: dict[str, str] | None = None) -> tuple[faults.Fault, ...]:
    args, planned = _planned(*flags)
    return faults.of_configuration(args, environment or {}, planned, settings.Settings(), 8)


def test_configurations_bring_their_own_faults():
    assert _of() == ()
    assert _of("--flashinfer-allreduce-fusion-backend", "auto")[0].text.endswith("SM90 or SM10X NVIDIA GPUs.")
    assert _of("--mem-fraction-static", "0.97")[0].kind == "oom"
    assert "Not enough memory" in _of("--mem-fraction-static", "0.3")[0].text
    assert _of(environment={"NCCL_P2P_DISABLE": "1", "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"})[0].stage in STAGES


def test_every_fault_of_a_configuration_names_a_stage_of_a_start():
    for _, fault in faults.BY_CONFIGURATION:
        assert fault.stage in STAGES or fault.kind in faults.SERVING
