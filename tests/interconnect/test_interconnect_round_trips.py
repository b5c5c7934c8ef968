"""Collectives counted from a model's shape, and the traffic predicted from them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interconnect.model_shape import Layout, ModelShape, ShapeError, Speculation
from interconnect.round_trips import Collective, count, decoding_step, forward_pass, per_output_token, ring_bytes
from interconnect.traffic_model import AllReduceCurve, Point, best_curve, predict

MODELS = Path(__file__).parents[1] / "fixtures" / "models"


def shape(name):
    return ModelShape.from_config(json.loads((MODELS / f"{name}.json").read_text()))


QWEN = shape("qwen3.5-397b-a17b")
TP8 = Layout(8)


def test_the_hybrid_moe_model_with_a_draft_head_is_read_from_its_text_config():
    expected = ModelShape(4096, 60, 248320, 60, 45, 10, 1, 2)
    assert shape("qwen3.5-397b-a17b") == expected
    assert QWEN.row_bytes == 8192


def test_dense_layers_before_the_experts_are_no_moe_layers():
    assert shape("deepseek-v3-shape").moe_layers == 58
    assert shape("small-dense") == ModelShape(1024, 8, 8192)


def test_a_target_pass_of_qwen_on_eight_gpus_makes_121_all_reduces_and_gathers_its_logits():
    collectives = forward_pass(QWEN, TP8, 1)
    assert count(collectives, "all-reduce") == 121
    assert count(collectives, "all-gather") == 1
    assert count(collectives) == 122


def test_a_verify_step_of_three_drafts_makes_about_133_collectives():
    step = decoding_step(QWEN, TP8, 1, Speculation(3))
    # two draft passes and the extending one: 3 all-reduces each
    assert count(step, "all-reduce") == 121 + 3 * 3
    assert count(step) == pytest.approx(133, rel=0.02)
    sampled = decoding_step(QWEN, TP8, 1, Speculation(3), sampled=True)
    assert count(sampled, "broadcast") == 3
    assert per_output_token(step, 3.35) == pytest.approx(40, abs=0.5)


def test_the_verified_rows_are_the_batch_times_the_draft_tokens():
    step = decoding_step(QWEN, TP8, 32, Speculation(3))
    assert step[0].message_bytes == 2**20
    assert decoding_step(QWEN, TP8, 1, Speculation(3))[0].message_bytes == 32 * 1024
    assert forward_pass(QWEN, TP8, 8192)[0].message_bytes == 64 * 2**20


def test_a_single_verify_step_sends_seven_megabytes_in_the_targets_all_reduces():
    all_reduces = [one for one in forward_pass(QWEN, TP8, 4) if one.kind == "all-reduce"]
    assert ring_bytes(all_reduces) == pytest.approx(121 * 57344)


def test_one_gpu_makes_no_collective():
    assert forward_pass(QWEN, Layout(), 8) == ()


def test_spread_experts_change_nothing_and_exchanged_ones_replace_the_all_reduces():
    assert forward_pass(QWEN, Layout(8, expert_parallel=8), 8) == forward_pass(QWEN, TP8, 8)
    exchanged = forward_pass(QWEN, Layout(8, expert_parallel=8, all_to_all=True), 8)
    assert count(exchanged, "all-to-all") == 120
    assert count(exchanged, "all-reduce") == 1


def test_data_parallel_attention_gathers_tokens_and_reduces_no_attention():
    full = forward_pass(QWEN, Layout(8, attention_data=8), 8)
    assert {(one.kind, one.count) for one in full} == {("all-gather", 60), ("reduce-scatter", 60), ("all-gather", 1)}
    half = forward_pass(QWEN, Layout(8, attention_data=4), 8)
    assert count(half, "all-reduce") == 1
    assert count(half) == 4 * 60 + 2


def test_two_stages_halve_each_gpus_share_and_send_hidden_states_and_residual_once():
    staged = forward_pass(QWEN, Layout(4, pipeline=2), 4)
    (send,) = [one for one in staged if one.kind == "send"]
    assert (send.count, send.message_bytes) == (1, 4 * 8192 * 2)
    assert count(staged, "all-reduce") == 121
    whole = [one for one in forward_pass(QWEN, Layout(4), 4) if one.kind == "all-reduce"]
    assert ring_bytes([one for one in staged if one.kind == "all-reduce"]) == ring_bytes(whole) / 2


def test_layout_and_speculation_are_read_from_flags():
    flags = {"--tp-size": 8, "--enable-dp-attention": True, "--dp-size": 4, "--moe-a2a-backend": "deepep"}
    assert Layout.from_flags(flags) == Layout(8, 1, 4, 8, True)
    assert Layout.from_flags({"--tp-size": 4, "--dp-size": 2}) == Layout(4)
    assert Speculation.from_flags({}) is None
    given = {"--speculative-algorithm": "NEXTN", "--speculative-num-steps": 5, "--speculative-num-draft-tokens": 9}
    assert Speculation.from_flags(given) == Speculation(5, 1, 6)


def test_what_cannot_be_counted_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ShapeError, match="does not divide"):
        Layout(8, attention_data=3)
    with pytest.raises(ShapeError, match="hidden_size"):
        ModelShape.from_config({"num_hidden_layers": 2})
    with pytest.raises(ShapeError, match=r"config\.json cannot be read"):
        ModelShape.from_folder(tmp_path)
    with pytest.raises(ValueError, match="impossible"):
        per_output_token((), 0.5)


@given(st.integers(2, 16), st.integers(1, 2**30))
def test_an_all_reduce_sends_as_much_as_scattering_and_gathering(ranks, size):
    parts = [Collective(kind, "", 1, ranks, size).ring_bytes for kind in ("reduce-scatter", "all-gather")]
    assert Collective("all-reduce", "", 1, ranks, size).ring_bytes == pytest.approx(sum(parts))


FIFTEEN_US = AllReduceCurve(8, (Point(8192, 15e-6), Point(32768, 15e-6), Point(2**20, 85e-6), Point(2**26, 3e-3)))


def test_fifteen_microseconds_an_all_reduce_are_two_milliseconds_a_verify_step():
    predicted = predict(QWEN, TP8, FIFTEEN_US, concurrency=1, speculation=Speculation(3), acceptance_length=3.0)
    # 130 small all-reduces and four gathers of logits
    assert predicted.step_ms == pytest.approx(130 * 0.015, rel=0.15)
    assert predicted.token_ms == pytest.approx(predicted.step_ms / 3)
    assert "% of the" in predicted.sentence(5.0)


def test_acceptance_divides_bytes_and_time():
    speculation = Speculation(3)
    alone = predict(QWEN, TP8, FIFTEEN_US, concurrency=8, speculation=speculation, acceptance_length=1.0)
    good = predict(QWEN, TP8, FIFTEEN_US, concurrency=8, speculation=speculation, acceptance_length=2.0)
    assert good.sent_bytes_per_token == pytest.approx(alone.sent_bytes_per_token / 2)
    assert good.token_ms == pytest.approx(alone.token_ms / 2)
    with pytest.raises(ValueError, match="impossible"):
        predict(QWEN, TP8, FIFTEEN_US, concurrency=8, acceptance_length=2.0)


def test_without_byte_counters_the_ring_is_assumed_and_with_them_what_was_seen():
    dense, pair = shape("small-dense"), Layout(2)
    silent = AllReduceCurve(2, (Point(2048, 1e-5), Point(2**20, 1e-4)))
    assert predict(dense, pair, silent, concurrency=8).sent_bytes_per_token == pytest.approx(
        predict(dense, pair, silent, concurrency=8).ring_bytes_per_token
    )
    counted = AllReduceCurve(2, (Point(2048, 1e-5, 3 * 2048), Point(2**20, 1e-4, 3 * 2**20)))
    seen = predict(dense, pair, counted, concurrency=8)
    assert seen.sent_bytes_per_token == pytest.approx(3 * seen.ring_bytes_per_token)


def test_prompts_add_their_rows_to_the_bytes_of_an_output_token():
    without = predict(QWEN, TP8, FIFTEEN_US, concurrency=8)
    given = predict(QWEN, TP8, FIFTEEN_US, concurrency=8, prompt_tokens_per_output_token=2.0)
    per_row = 121 * 2 * 7 / 8 * 8192
    assert given.sent_bytes_per_token - without.sent_bytes_per_token == pytest.approx(2 * per_row, rel=0.01)


def test_the_floor_takes_the_fastest_candidate_at_each_size():
    slow_start = AllReduceCurve(8, (Point(8192, 50e-6), Point(2**26, 1e-3)))
    floor = best_curve([FIFTEEN_US, slow_start])
    assert floor.seconds(8192) == 15e-6
    assert floor.seconds(2**26) == 1e-3
    predicted = predict(QWEN, TP8, slow_start, concurrency=1, floor=floor)
    assert predicted.floor_token_ms < predicted.token_ms


@given(st.integers(1, 2**32))
def test_a_curve_is_positive_and_never_falls_with_size(size):
    assert 0 < FIFTEEN_US.seconds(size) <= FIFTEEN_US.seconds(size * 2) + 1e-12
