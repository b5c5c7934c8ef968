"""The log: formats of both versions, ranks, bars, memory; and what a start costs."""

from __future__ import annotations

import re

import psutil
import pytest

from rehearsal.log_lines import capture_bar, prefix, shards_bar

# Shapes of lines as the real engines wrote them (two H200 with 0.5.17, two CPU cores with 0.5.23).
STAMP = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP\d\] "
COMMON = (
    STAMP + r"Load weight begin\. avail mem=\d+\.\d\d GB$",
    STAMP + r"Load weight end\. elapsed=\d+\.\d\d s, type=\w+, avail mem=\d+\.\d\d GB, mem usage=\d+\.\d\d GB\.$",
    STAMP + r"Load weight end\. elapsed=\d+\.\d\d s, type=\w+MTP, avail mem=",
    STAMP + r"Mamba Cache is allocated\. max_mamba_cache_size: \d+, conv_state size: \d+\.\d\dGB, ssm_state size: "
    r"\d+\.\d\dGB intermediate_ssm_state_cache size: \d+\.\d\dGB intermediate_conv_window_cache size: 0\.00GB $",
    STAMP
    + r"KV Cache is allocated\. dtype: torch\.bfloat16, #tokens: \d+, K size: \d+\.\d\d GB, V size: \d+\.\d\d GB$",
    STAMP + r"Memory pool end\. avail mem=\d+\.\d\d GB$",
    STAMP + r"Capture target verify CUDA graph begin\. backend=full, num_tokens_per_req=4, bs=\[1, 2, .*\], avail mem=",
    STAMP
    + r"Capture target verify CUDA graph end\. elapsed=\d+\.\d\d s, mem usage=\d\.\d\d GB, avail mem=\d+\.\d\d GB\.$",
    STAMP + r"Capture draft decode CUDA graph begin\. backend=full, num_tokens_per_req=1, bs=",
    STAMP + r"Capture draft extend CUDA graph end\. elapsed=",
    STAMP + r"max_total_num_tokens=\d+, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=48, "
    r"context_len=32768, available_gpu_mem=\d+\.\d\d GB$",
    r"\[[^T]*\] INFO:     Started server process \[\d+\]$",
    r"\[[^T]*\] INFO:     Uvicorn running on http://127\.0\.0\.1:\d+ \(Press CTRL\+C to quit\)$",
    r"\[[^T]*\] The server is fired up and ready to roll!$",
    r'\[[^T]*\] INFO:     127\.0\.0\.1:\d+ - "GET /ready HTTP/1\.1" 200 OK$',
    r"\rMulti-thread loading shards: 100% Completed \| 1/1 \[00:00<00:00, *\d+\.\d\dit/s\]$",
    r"\rCapturing batches \(bs=48 avail_mem=\d+\.\d\d GB\):   0%\|          \| 0/\d+ \[00:00<\?, \?it/s\]",
)
OF_VERSION = {
    "0.5.17": (
        STAMP + r"Init torch distributed begin\.$",
        STAMP + r"Init torch distributed ends\. elapsed=\d+\.\d\d s, mem usage=\d\.\d\d GB$",
        r"\[[^T]*\] server_args=ServerArgs\(.*model_path='/models/tiny'.*\)$",
        STAMP + r"Init Unified RadixTree with components",
    ),
    "0.5.23": (
        STAMP + r"Init parallel begin\.$",
        STAMP + r"Init parallel ends\. elapsed=\d+\.\d\d s$",
        STAMP + r"Memory baseline taken\. mem usage=\d\.\d\d GB$",
        r"\[[^T]*\] server_args=\{.*'model_path': '/models/tiny'.*\}$",
        STAMP + r"Init Unified Radix Cache\. Components: .*Tree Core: RustUnifiedTreeCore$",
    ),
}


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
def test_lines_have_the_shapes_of_the_version(start, version):
    engine = start("--tp-size", "2", "--speculative-algorithm", "NEXTN", REHEARSAL_VERSION=version).until_ready()
    log = engine.log_path.read_bytes().decode()
    missing = [shape for shape in (*COMMON, *OF_VERSION[version]) if not re.search(shape, log, re.MULTILINE)]
    assert missing == []


def test_serving_lines_say_acceptance_and_memory(start):
    engine = start("--tp-size", "2", "--speculative-algorithm", "NEXTN", REHEARSAL_TIME_SCALE="20").until_ready()
    engine.json("/generate", {"text": "hi" * 99, "sampling_params": {"max_new_tokens": 400, "ignore_eos": True}})
    assert re.search(r"TP0\] Prefill batch, #new-seq: 1, #new-token: 50, #cached-token: 0, full token usage: 0\.\d\d, "
                     r"mamba usage: 0\.\d\d, #running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, "
                     r"input throughput \(token/s\): \d+\.\d\d", engine.log)  # fmt: skip
    assert re.search(r"TP0\] Decode batch, #running-req: 1, #full token: \d+, full token usage: 0\.\d\d, mamba num: 2, "
                     r"mamba usage: 0\.\d\d, accept len: \d\.\d\d, accept rate: 0\.\d\d, cuda graph: True, "
                     r"gen throughput \(token/s\): \d+\.\d\d, #queue-req: 0", engine.log)  # fmt: skip


def test_prefixes_name_only_dimensions_wider_than_one():
    places = {"DP": 1, "PP": 0, "TP": 3, "EP": 0}
    assert prefix({"TP": 8}, places) == " TP3"
    assert prefix({"DP": 2, "PP": 2, "TP": 4}, places) == " DP1 PP0 TP3"
    assert prefix({"TP": 1}, places) == ""


def test_bars_are_drawn_as_tqdm_draws_them():
    assert shards_bar(0, 1, 0) == "\rMulti-thread loading shards:   0% Completed | 0/1 [00:00<?, ?it/s]"
    assert shards_bar(5, 11, 12.0) == "\rMulti-thread loading shards:  45% Completed | 5/11 [00:12<00:14, 0.42it/s]"
    drawn = capture_bar(14, 42.44, 2, 12, 22.16)
    assert drawn == "\rCapturing batches (bs=14 avail_mem=42.44 GB):  17%|█▋        | 2/12 [00:22<01:50, 11.08s/it]"


def test_dp_and_pp_ranks_are_processes_of_their_own(start):
    engine = start("--tp-size", "2", "--pp-size", "2", "--dp-size", "2").until_ready()
    assert len(engine.children()) == 8
    for rank in ("DP0 PP0 TP0", "DP1 PP1 TP1"):
        assert f" {rank}] Load weight end." in engine.log


def test_eight_ranks_start_within_six_tenths_of_a_second_of_processor_time(start):
    """Processor time rather than wall time, so that a busy machine cannot fail it."""
    spent = []
    for _ in range(3):
        engine = start("--tp-size", "8", model="/models/Qwen3.5-397B-A17B-NVFP4").until_ready()
        processes = [psutil.Process(engine.process.pid), *engine.children()]
        assert len(processes) == 9
        spent.append(sum(sum(process.cpu_times()[:2]) for process in processes))
        engine.process.terminate()
    assert min(spent) < 0.6


def test_pauses_scale_with_the_speed(start):
    engine = start("--tp-size", "2", REHEARSAL_SPEED="0.05").until_ready()
    elapsed = [
        float(text) for text in re.findall(r"Capture target decode CUDA graph end\. elapsed=([\d.]+)", engine.log)
    ]
    assert len(elapsed) == 2
    assert all(0.5 < seconds < 5 for seconds in elapsed)
    assert "Capturing batches" in engine.log
