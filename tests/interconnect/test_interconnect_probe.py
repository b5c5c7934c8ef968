"""The all-reduce probe with ranks of known behaviour and with the real torch, and the ranking of what it finds."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from interconnect.model_shape import Layout, ModelShape, Speculation
from interconnect.probe import Probe, common_candidates, first_third, loads, method_of, order, rank, run_probe
from interconnect.probe_process import Limits
from interconnect.probe_results import ProbeResult, SizeResult, weights_of

ROOT = Path(__file__).parents[2]
KNOWN_TORCH = Path(__file__).with_name("known_torch")
QUICK = Limits(imports_s=20.0, stage_s=1.5, whole_s=30.0)
SMALL = ModelShape(64, 2, 128)


def probe(behaviour="", **given):
    environment = {"PYTHONPATH": str(KNOWN_TORCH), "KNOWN_TORCH": behaviour}
    return Probe(sys.executable, environment=environment, hidden=64, limits=QUICK, budget_s=0.01, **given)


def result(candidate, times, failure=None):
    sizes = tuple(SizeResult(size, us, us * 2, 1.0, 100) for size, us in times.items())
    return ProbeResult(candidate, 8, sizes, failure)


def test_a_candidate_gives_median_and_tail_of_every_size():
    (found,) = probe().run([{}], [128, 1280])
    assert found.failure is None
    assert [one.message_bytes for one in found.sizes] == [128, 1280]
    assert 1000 <= found.sizes[0].p50_us <= found.sizes[0].p99_us
    assert found.sizes[0].sent_bytes is None, "no GPU, no counters"
    assert found.ranks == 2
    json.dumps(found.as_dict())


def test_the_faster_setting_is_ranked_first():
    slow, fast = probe().run([{}, {"NCCL_PROTO": "LL"}], [128])
    ranked = rank([slow, fast], {128: 1.0})
    assert ranked[0].result is fast
    assert ranked[0].cost == 1.0
    assert order(ranked) == ({"NCCL_PROTO": "LL"}, {})


def test_a_hang_at_the_first_all_reduce_ends_in_time_and_is_the_environments_with_its_remedy():
    begin = time.monotonic()
    hung, fine = probe("hang").run([{}, {"NCCL_P2P_DISABLE": "1"}], [128])
    assert time.monotonic() - begin < 20
    assert hung.failure.blame == "environment"
    assert "first all-reduce" in hung.failure.cause
    assert "NCCL_P2P_DISABLE=1" in hung.failure.remedy
    assert fine.failure is None, "the next candidate is probed all the same"


def test_a_hang_under_a_peer_level_blames_the_level():
    (hung,) = probe("hang").run([{"NCCL_P2P_LEVEL": "SYS"}], [128])
    assert hung.failure.blame == "configuration"
    assert "NCCL_P2P_LEVEL=SYS" in hung.failure.remedy


def test_no_room_in_shared_memory_is_recognised_by_the_knowledge_base():
    (failed,) = probe("no shared memory").run([{}], [128])
    assert failed.failure.blame == "environment"
    assert "shm" in failed.failure.remedy


def test_a_rank_that_is_killed_ends_the_candidate_at_once():
    begin = time.monotonic()
    (failed,) = probe("second rank killed").run([{}], [128])
    assert failed.failure is not None
    assert time.monotonic() - begin < 15


def test_a_wrong_sum_is_a_failure():
    (failed,) = probe("wrong sum").run([{}], [128])
    assert "wrong sum" in failed.failure.evidence


def test_an_interpreter_that_does_not_exist_is_a_failure_and_no_traceback():
    (failed,) = Probe("/nowhere/python3", hidden=64).run([{}], [128])
    assert "/nowhere/python3" in failed.failure.cause
    assert failed.failure.blame == "environment"
    assert "interpreter" in failed.failure.remedy


def test_imports_that_take_for_ever_are_the_environments_fault():
    (failed,) = Probe(
        sys.executable,
        environment={"PYTHONPATH": str(KNOWN_TORCH), "KNOWN_TORCH": "slow imports"},
        hidden=64,
        limits=Limits(imports_s=1.0),
    ).run([{}], [128])
    assert failed.failure.blame == "environment"
    assert "imported torch" in failed.failure.cause


def test_another_all_reduce_that_cannot_be_used_blames_its_setting():
    (failed,) = probe().run([{"QUIETLANE_ALL_REDUCE": "sglang-custom"}], [128])
    assert failed.failure.blame == "configuration"
    assert method_of({"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"}) == "flashinfer-pcie"


def test_no_rank_outlives_a_prober_that_is_killed():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from interconnect.probe import Probe\n"
        "how = {'PYTHONPATH': sys.argv[2], 'KNOWN_TORCH': 'hang'}\n"
        "Probe(sys.executable, environment=how, hidden=64).run([{}], [128])"
    )
    prober = subprocess.Popen([sys.executable, "-c", code, str(ROOT), str(KNOWN_TORCH)], stderr=subprocess.DEVNULL)
    ranks = []
    deadline = time.monotonic() + 20
    while len(ranks) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
        ranks = [one for one in psutil.Process(prober.pid).children() if "probe_child" in " ".join(one.cmdline())]
    time.sleep(1.0)  # each has told the kernel by now
    os.kill(prober.pid, signal.SIGKILL)
    prober.wait()
    assert len(ranks) == 2
    assert not psutil.wait_procs(ranks, timeout=10)[1]


def test_message_sizes_are_those_of_the_models_steps_and_each_load_counts_equally():
    qwen = ModelShape(4096, 60, 248320, 60, 45, 10, 1)
    weights = weights_of(loads(qwen, Layout(8), [1, 32], Speculation(3), 2048))
    assert set(weights) == {8192, 32 * 1024, 256 * 1024, 2**20, 16 * 2**20}
    assert sum(weights.values()) == pytest.approx(1)
    assert weights[16 * 2**20] == pytest.approx(1 / 3)


def test_failed_candidates_come_last_and_the_first_third_is_of_those_that_worked():
    failed = probe("wrong sum").run([{"A": "1"}], [128])[0]
    times = {f"c{number}": 10.0 + number for number in range(6)}
    ranked = rank([failed, *(result({name: "1"}, {1024: us}) for name, us in times.items())], {1024: 1.0})
    assert ranked[-1].result is failed
    assert ranked[-1].cost == math.inf
    assert [one.result.label for one in first_third(ranked)] == ["c0=1", "c1=1"]
    assert first_third([]) == ()


def test_small_messages_are_not_drowned_by_large_ones():
    small = result({"A": "1"}, {1024: 10.0, 2**20: 1100.0})
    large = result({"B": "1"}, {1024: 20.0, 2**20: 1000.0})
    assert rank([large, small], {1024: 0.5, 2**20: 0.5})[0].result is small


def test_without_gpus_the_report_says_so_and_prints_a_table():
    report = run_probe(
        sys.executable,
        [],
        [{}, {"NCCL_PROTO": "LL"}],
        shape=SMALL,
        concurrencies=[1],
        environment={"PYTHONPATH": str(KNOWN_TORCH)},
        limits=QUICK,
    )
    assert "no GPU here" in report.as_text()
    assert report.order()[0] == {"NCCL_PROTO": "LL"}
    assert report.environment_failure() is None
    assert json.loads(json.dumps(report.as_dict()))["candidates"][0]["place"] == 1


def test_no_candidate_is_begun_when_the_time_is_up_and_the_note_says_how_many_were_left():
    report = run_probe(
        sys.executable,
        [],
        [{}, {"NCCL_PROTO": "LL"}],
        shape=SMALL,
        concurrencies=[1],
        environment={"PYTHONPATH": str(KNOWN_TORCH)},
        limits=QUICK,
        within_s=0.0,
    )
    assert "2 of 2 settings were left" in report.note or "1 of 2 settings were left" in report.note


def test_at_least_twelve_nccl_settings_are_tried_and_none_twice():
    tried = common_candidates()
    assert sum(method_of(one) == "library" for one in tried) >= 12
    assert len({json.dumps(one, sort_keys=True) for one in tried}) == len(tried)


@pytest.mark.real
def test_real_ranks_meet_through_gloo():
    python = os.environ.get("QUIETLANE_CPU_ENGINE") or str(ROOT / ".sglang-cpu" / "bin" / "python")
    if not Path(python).exists():
        pytest.skip("no interpreter with torch: python -m engine.cpu.prepare --venv .sglang-cpu makes one")
    (found,) = Probe(python, hidden=64, budget_s=0.05).run([{}], [128, 65536])
    assert found.failure is None, found.failure
    assert found.sizes[0].p50_us > 0
