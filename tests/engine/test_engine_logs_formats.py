"""Formats of other releases, other prefixes, and what interleaves."""

from __future__ import annotations

from start_of_a_log import FIRED_UP, READY, stamped, up_to

from engine.logs import LogReader
from engine.phase import Phase


def read(text: str | bytes) -> LogReader:
    reader = LogReader()
    reader.feed(text.encode() if isinstance(text, str) else text)
    reader.finish()
    return reader


def by_name(reader: LogReader, rank: str) -> dict[str, Phase]:
    return {phase.name: phase for phase in reader.phases if phase.rank == rank}


OLD = "".join(
    stamped(text, "TP0", second)
    for second, text in enumerate(
        (
            "Init torch distributed begin.",
            "Init torch distributed ends. elapsed=1.50 s, mem usage=0.50 GB",
            "Load weight begin. avail mem=90.00 GB",
            "Load weight end. elapsed=12.00 s, type=X, quant=modelopt_fp4, avail mem=60.00 GB, mem usage=30.00 GB.",
            "Using KV cache dtype: torch.float8_e4m3fn",
            "KV Cache is allocated. #tokens: 100, K size: 10.00 GB, V size: 10.00 GB",
            "Memory pool end. avail mem=40.00 GB",
            "Capture cuda graph begin. This can take up to several minutes. avail mem=39.50 GB",
            "Capture cuda graph bs [1, 2, 4]",
            "Capture cuda graph end. Time elapsed: 20.25 s. mem usage=1.50 GB. avail mem=38.00 GB.",
            "Capture piecewise CUDA graph begin. avail mem=38.00 GB",
            "Capture piecewise CUDA graph end. Time elapsed: 7.00 s. mem usage=0.50 GB. avail mem=37.50 GB.",
            "Init torch distributed begin.",
            "Init torch distributed ends. elapsed=0.00 s, mem usage=0.00 GB",
            "Load weight begin. avail mem=37.50 GB",
            "Load weight end. elapsed=2.00 s, type=XMTP, avail mem=36.00 GB, mem usage=1.50 GB.",
            "KV Cache is allocated. #tokens: 100, K size: 1.00 GB, V size: 1.00 GB",
            "Memory pool end. avail mem=34.00 GB",
            "Capture draft cuda graph begin. This can take up to several minutes. avail mem=34.00 GB",
            "Capture draft cuda graph end. Time elapsed: 4.00 s. mem usage=0.25 GB. avail mem=33.75 GB.",
            "Capture draft extend cuda graph begin (step 0). This can take up to several minutes. avail mem=33.75 GB",
            "Capture draft extend cuda graph end. Time elapsed: 3.00 s. mem usage=0.25 GB. avail mem=33.50 GB.",
            "Running FlashInfer autotune...",
            "FlashInfer autotune completed.",
            "max_total_num_tokens=100, chunked_prefill_size=8192, available_gpu_mem=33.40 GB",
        )
    )
)


def test_the_words_of_0_5_11_are_understood() -> None:
    phases = by_name(read(OLD + READY + FIRED_UP), "TP0")
    assert {name: (phase.elapsed_s, phase.memory_used_gb, phase.memory_left_gb) for name, phase in phases.items()} == {
        "imports": (0.0, None, None),
        "distributed init": (1.5, 0.5, 90.0),
        "weights": (12.0, 30.0, 60.0),
        # the target's pool and, after the target's graphs, the draft's: 3 s and 2 s, 20 GB and 2 GB
        "mamba and KV cache": (5.0, 22.0, 34.0),
        "target graphs": (20.25, 1.5, 38.0),
        "prefill graphs": (7.0, 0.5, 37.5),
        "draft weights": (2.0, 1.5, 36.0),
        "draft graphs": (4.0, 0.25, 33.75),
        "draft-extend graphs": (3.0, 0.25, 33.5),
        "autotune": (1.0, None, None),
        "warm-up": (5.0, None, None),
        "ready": (0.0, None, 33.4),
    }


def test_the_words_tell_the_release_where_the_arguments_are_missing() -> None:
    assert read(OLD).version == "0.5.11-0.5.13"
    assert read(stamped("Init parallel begin.")).version == "0.5.21-0.5.23"


def test_0_5_23_prints_its_batch_sizes_at_the_end_and_labels_its_pools() -> None:
    log = "".join(
        stamped(text, "DP1 TP0", second)
        for second, text in enumerate(
            (
                "Load weight begin. avail mem=90.00 GB",
                "Load weight end. elapsed=9.00 s, type=X, avail mem=60.00 GB, mem usage=30.00 GB.",
                "Full attention KV Cache VA upper bound. dtype: torch.bfloat16, #tokens: 9, K size: 1.00 GB",
                "Memory pool end. avail mem=40.00 GB",
                "Capture target prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=40.00 GB",
                "Capture target prefill CUDA graph end. elapsed=5.00 s, mem usage=0.50 GB, avail mem=39.50 GB.",
                "Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=4, avail mem=39.50 GB",
                "Capture target verify CUDA graph end. bs=[1], elapsed=6.00 s, mem usage=0.50 GB, avail mem=39.00 GB.",
                "Capture draft prefill CUDA graph begin. backend=breakable, num_tokens=[4, 8], avail mem=39.00 GB",
                "Capture draft prefill CUDA graph end. elapsed=1.00 s, mem usage=0.25 GB, avail mem=38.75 GB.",
            )
        )
    )
    phases = by_name(read(log), "DP1 TP0")
    assert (phases["target graphs"].elapsed_s, phases["target graphs"].memory_left_gb) == (6.0, 39.0)
    assert (phases["prefill graphs"].elapsed_s, phases["prefill graphs"].memory_used_gb) == (6.0, 0.75)
    assert phases["mamba and KV cache"].memory_used_gb == 20.0


def test_ranks_are_named_by_their_prefix_and_ordered_by_number() -> None:
    ranks = ("DP1 PP0 ATTN_CP0 MOE_DP0 TP10 EP3", "DP0 PP1 TP2 EP2", "DP0 PP1 TP10 EP2", "DP0 PP0 TP0 EP0")
    found = [phase.rank for phase in read(up_to("weights", ranks)).phases if phase.name == "weights"]
    assert found == ["DP0 PP0 TP0 EP0", "DP0 PP1 TP2 EP2", "DP0 PP1 TP10 EP2", "DP1 PP0 ATTN_CP0 MOE_DP0 TP10 EP3"]


def test_messages_that_share_a_line_with_each_other_and_a_bar_are_told_apart() -> None:
    log = (
        up_to("target graphs")
        + "\rCapturing batches (bs=16 avail_mem=42.51 GB):  25%|██▌       | 3/12 [00:41<07:41, 41.94s/it]"
        + stamped(
            "Capture target verify CUDA graph end. elapsed=8.00 s, mem usage=0.12 GB, avail mem=42.39 GB.", "TP1"
        ).strip()
        + stamped("using attn output gate!", "TP0")
    )
    reader = read(log)
    assert by_name(reader, "TP1")["target graphs"].done
    assert by_name(reader, "TP0")["target graphs"].progress == 0.25
    assert by_name(reader, "TP1")["target graphs"].progress is None
    assert not by_name(reader, "TP0")["target graphs"].done


def test_a_bar_is_seen_before_its_line_has_ended() -> None:
    reader = LogReader()
    reader.feed(up_to("weights").encode())
    reader.feed(b"\rLoading safetensors checkpoint shards:  45% Completed | 5/11 [00:12<00:14,  2.40s/it]")
    assert by_name(reader, "TP0")["weights"].progress == 5 / 11


def test_a_rank_that_prints_less_is_neither_stuck_nor_behind() -> None:
    log = up_to("target graphs")
    for rank in ("TP0", "TP1"):
        log += stamped("Capture target verify CUDA graph end. elapsed=8.00 s, mem usage=0.1 GB, avail mem=42 GB.", rank)
    log += stamped("Capture draft decode CUDA graph begin. backend=full, avail mem=42.00 GB", "TP0")
    progress = read(log).progress()
    assert progress.current["TP1"].done
    assert progress.behind is None
    ready = read(log + READY + FIRED_UP)
    assert all(phase.done for phase in ready.phases)


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    log = up_to("weights") + stamped(
        "Load weight end. elapsed=1.00 s, type=X, avail mem=1.0 GB, mem usage=1.0 GB.", "TP0"
    )
    assert read(log).progress().behind == "TP1"


def test_a_second_pair_of_weights_without_speculation_is_no_draft() -> None:
    log = stamped("server_args=ServerArgs(model_path='x', speculative_algorithm=None, tp_size=2)")
    for second in (1, 3):
        log += stamped("Load weight begin. avail mem=9.00 GB", "", second)
        log += stamped("Load weight end. elapsed=1.00 s, type=X, avail mem=8.00 GB, mem usage=1.00 GB.", "", second + 1)
    assert "draft weights" not in by_name(read(log), "TP0")


def test_a_logging_configuration_of_the_users_own_keeps_phases_and_failure() -> None:
    log = (
        "2026-11-30 20:27:01,100 INFO sglang.srt.model_executor Init parallel begin.\n"
        "2026-11-30 20:27:03,600 INFO sglang.srt.model_executor Init parallel ends. elapsed=2.50 s\n"
        '{"time": "2026-11-30T20:27:04", "message": "Load weight begin. avail mem=9.00 GB"}\n'
        '{"time": "2026-11-30T20:27:06", "message": "Scheduler hit an exception: Traceback (most recent call last):\\n'
        '  File \\"/x/model_loader/loader.py\\", line 1, in load_model\\nValueError: in features size is not '
        'multiple of 16\\n"}\n'
        '{"time": "2026-11-30T20:27:07", "message": "Received sigquit from a child process. It usually means"}\n'
    )
    reader = read(log)
    phases = by_name(reader, "TP0")
    assert (phases["distributed init"].elapsed_s, phases["imports"].elapsed_s) == (2.5, 0.0)
    failure = reader.failure()
    assert failure is not None
    assert (failure.rank, failure.phase, failure.blame) == ("TP0", "weights", "environment")


def test_a_start_time_of_the_launcher_begins_the_imports() -> None:
    reader = LogReader(started_at=1_000.0)
    reader.feed(stamped("Init parallel begin.", "TP0").encode())
    assert by_name(reader, "TP0")["imports"].started_at == 1_000.0


def test_what_serving_prints_is_not_taken_for_a_phase() -> None:
    log = up_to("ready") + stamped("Load weight begin. avail mem=9.00 GB", "TP0") + stamped("Capturing the mood", "TP0")
    assert [p.name for p in read(log).phases if p.rank == "TP0"][-1] == "ready"
