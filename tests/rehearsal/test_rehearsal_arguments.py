"""The command line: SGLang's flags, its refusals and its rewrites."""

from __future__ import annotations

from typing import Any

import pytest

from rehearsal import arguments, model, resolution, settings

BASE = ["--model-path", "/m/Qwen3.5-397B-A17B-NVFP4", "--tp-size", "8"]


def resolved(*flags: str, version: str = "0.5.23") -> dict[str, Any]:
    return resolution.resolve(arguments.parse([*BASE, *flags], arguments.load_flags(version)), settings.Settings(), {})[
        0
    ]


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--no-such-flag", "1"], "unrecognized arguments: --no-such-flag 1"),
        (["--mamba-scheduler-strategy", "auto"], "unrecognized arguments: --mamba-scheduler-strategy auto"),
        (["--cuda-graph-max-bs", "8"], "ambiguous option: --cuda-graph-max-bs could match --cuda-graph-max-bs-decode, "
         "--cuda-graph-max-bs-prefill"),
        (["--fp4-gemm-backend", "b12x"], "argument --fp4-gemm-backend: invalid choice: 'b12x'"),
        (["--tp-size", "eight"], "argument --tp-size/--tensor-parallel-size: invalid int value: 'eight'"),
        (["--page-size"], "argument --page-size: expected one argument"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_refused_as_argparse_does(flags, text):
    with pytest.raises(arguments.UsageError) as refused:
        arguments.parse([*BASE, *flags], arguments.load_flags("0.5.23"))
    assert text in str(refused.value)


def test_flags_of_0_5_17_are_known_there():
    args = resolved("--mamba-scheduler-strategy", "extra_buffer", "--cuda-graph-max-bs", "8", version="0.5.17")
    assert (args["mamba_radix_cache_strategy"], args["cuda_graph_max_bs_decode"]) == ("extra_buffer", 8)


def test_a_wrong_command_line_exits_with_2(start):
    engine = start("--no-such-flag", "1")
    assert engine.exit_status() == 2
    assert engine.log.rstrip().endswith("error: unrecognized arguments: --no-such-flag 1")


def test_a_rejection_exits_with_1_and_a_traceback(start):
    engine = start("--speculative-algorithm", "NEXTN", "--speculative-eagle-topk", "2")
    assert engine.exit_status() == 1
    assert "Traceback (most recent call last):" in engine.log
    assert engine.log.rstrip().endswith("AssertionError")


def test_a_setting_that_cannot_be_is_refused_in_one_sentence(start):
    engine = start(REHEARSAL_SPEED="fast")
    assert engine.exit_status() == 2
    assert engine.log == "rehearsal: REHEARSAL_SPEED='fast' is no number; give one of at least 0, or unset it.\n"


@pytest.mark.parametrize(
    ("flags", "kind", "text"),
    [
        (["--mamba-radix-cache-strategy", "no_buffer"], "ValueError", "no_buffer do not support overlap schedule"),
        (["--mamba-radix-cache-strategy", "no_buffer", "--page-size", "64"], "ValueError", "only supports page_size=1"),
        (["--mamba-radix-cache-strategy", "extra_buffer", "--linear-attn-backend", "flashinfer"], "ValueError",
         "extra_buffer is not supported"),
        (["--page-size", "48"], "AssertionError", "must be divisible by the other"),
        (["--attention-backend", "trtllm_mha", "--kv-cache-dtype", "fp8_e4m3"], "ValueError",
         "does not support fp8_e4m3"),
        (["--chunked-prefill-size", "1000", "--page-size", "64"], "ValueError", "divisible by page_size"),
        (["--pp-size", "2", "--speculative-algorithm", "NEXTN"], "ValueError", "only supported on prefill nodes"),
    ],
)  # fmt: skip
def test_some_real_rules_reject(flags, kind, text):
    with pytest.raises(resolution.Rejected) as no:
        resolved(*flags)
    assert no.value.kind == kind
    assert text in no.value.text


def test_the_silent_rewrites_are_made():
    args = resolved("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "5", "--speculative-eagle-topk", "1")
    assert (args["speculative_algorithm"], args["speculative_num_draft_tokens"]) == ("EAGLE", 6)
    assert (args["max_running_requests"], args["cuda_graph_max_bs_decode"]) == (48, 48)
    assert resolved("--linear-attn-backend", "flashinfer")["disable_overlap_schedule"] is True
    assert resolved()["moe_runner_backend"] == "flashinfer_cutlass"


def rate(running: int, *flags: str, environment: dict[str, str] | None = None) -> float:
    """Nominal tokens a second of a batch, noise off."""
    times = model.times(resolved(*flags), environment or {}, settings.Settings(noise=0), "x")
    return running * 1000 * (1 + sum(times.acceptance)) / times.step_ms(running, 300)


def test_speculation_gains_most_alone_and_its_best_depth_falls_with_load():
    def spec(running: int, steps: int) -> float:
        flags = [
            "--speculative-algorithm",
            "NEXTN",
            "--speculative-num-steps",
            str(steps),
            "--speculative-eagle-topk",
            "1",
        ]
        return rate(running, *flags)

    assert 1.4 < spec(1, 3) / rate(1) < 1.6
    assert 1.05 < spec(32, 3) / rate(32) < 1.35
    assert max(range(1, 6), key=lambda steps: spec(1, steps)) == 3
    assert max(range(1, 6), key=lambda steps: spec(32, steps)) == 2


def test_settings_have_small_effects_and_the_same_configuration_the_same_speed():
    assert rate(1) == rate(1)
    faster = rate(1, environment={"SGLANG_ENABLE_PCIE_IPC_ALLREDUCE": "1"})
    assert 1.05 < faster / rate(1) < 1.3
    assert rate(1, environment={"NCCL_P2P_DISABLE": "1"}) < 0.8 * rate(1)


def test_launches_differ_by_noise_unless_the_seed_is_given():
    def one(seed: str) -> float:
        return model.times(resolved(), {}, settings.Settings(), seed).step_ms(1, 300)

    steps = [one(str(seed)) for seed in range(20)]
    assert one("3") == steps[3]
    assert 0.002 < (max(steps) - min(steps)) / steps[0] < 0.06
