"""Each endpoint answers as SGLang's does, and says that it is a rehearsal."""

from __future__ import annotations

import json
import time
import urllib.error

import pytest

GREEDY = {"max_new_tokens": 24, "temperature": 0, "ignore_eos": True}
FAST = {"REHEARSAL_TIME_SCALE": "20"}


def test_every_answer_says_that_it_is_a_rehearsal(start):
    engine = start("--tp-size", "2", **FAST).until_ready()
    assert engine.log.splitlines()[0].split("] ")[1].startswith("REHEARSAL: this is not SGLang")
    assert engine.json("/server_info")["rehearsal"] is True
    assert engine.json("/server_info")["version"] == "rehearsal-0.5.23"
    assert engine.json("/model_info")["rehearsal"] is True
    assert engine.json("/v1/models")["data"][0]["rehearsal"] is True
    meta = engine.json("/generate", {"text": "one", "sampling_params": GREEDY})["meta_info"]
    assert meta["rehearsal"].startswith("REHEARSAL")
    answer = engine.json("/v1/completions", {"prompt": "one", "max_tokens": 3})
    assert answer["system_fingerprint"] == "REHEARSAL"


def test_server_info_has_resolved_arguments_and_the_launch_command(start):
    engine = start("--tp-size", "2", "--speculative-algorithm", "NEXTN", **FAST).until_ready()
    engine.json("/generate", {"text": "one", "sampling_params": {**GREEDY, "max_new_tokens": 200}})
    info = engine.json("/get_server_info")
    assert (info["speculative_algorithm"], info["speculative_num_draft_tokens"]) == ("EAGLE", 4)
    assert info["max_running_requests"] == 48
    assert "--speculative-algorithm NEXTN" in info["launch_command"]
    state = info["internal_states"][0]
    assert 1.5 < state["avg_spec_accept_length"] <= 4
    assert state["memory_usage"]["kvcache"] > 0


def test_generate_counts_tokens_and_reports_acceptance(start):
    engine = start("--speculative-algorithm", "NEXTN", **FAST).until_ready()
    answer = engine.json("/generate", {"text": "a long question" * 9, "sampling_params": GREEDY})
    meta = answer["meta_info"]
    assert meta["completion_tokens"] == 24 == len(answer["output_ids"])
    assert meta["prompt_tokens"] == 34
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert 1 <= meta["spec_accept_length"] <= 4
    assert 0 <= meta["spec_accept_rate"] <= 1
    assert meta["spec_verify_ct"] >= 6


def test_streamed_text_ends_where_the_whole_answer_ends(start):
    engine = start(**FAST).until_ready()
    whole = engine.json("/generate", {"text": "one", "sampling_params": GREEDY})
    events = engine.events("/generate", {"text": "one", "sampling_params": GREEDY})
    assert events[-1][1]["text"] == whole["text"]
    assert events[-1][1]["meta_info"]["completion_tokens"] == 24
    assert events[-1][1]["meta_info"]["cached_tokens"] == whole["meta_info"]["prompt_tokens"] - 1
    assert [e["meta_info"]["finish_reason"] for _, e in events[:-1]] == [None] * (len(events) - 1)


def test_greedy_text_is_the_same_whatever_the_configuration(start):
    plain = start(**FAST).until_ready()
    other = start("--tp-size", "2", "--speculative-algorithm", "NEXTN", "--page-size", "64", **FAST).until_ready()
    asked = {"text": ["write a sorting program", "why is the sky blue"], "sampling_params": GREEDY}
    texts = [[answer["text"] for answer in engine.json("/generate", asked)] for engine in (plain, other)]
    assert texts[0] == texts[1]
    assert texts[0][0] != texts[0][1]


def test_an_answer_ends_by_itself_unless_told_to_ignore_that(start):
    engine = start(REHEARSAL_TIME_SCALE="200").until_ready()
    asked = {"text": "tell me", "sampling_params": {"temperature": 0, "max_new_tokens": 900}}
    meta = engine.json("/generate", asked)["meta_info"]
    assert meta["finish_reason"]["type"] == "stop"
    assert meta["completion_tokens"] < 900
    asked["sampling_params"]["ignore_eos"] = True
    assert engine.json("/generate", asked)["meta_info"]["completion_tokens"] == 900


def test_openai_streams_carry_text_and_usage(start):
    engine = start(**FAST).until_ready()
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    events = [e for _, e in engine.events("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})]
    assert events[-1]["usage"]["completion_tokens"] == 12
    assert events[-1]["choices"] == []
    text = "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1])
    assert text == engine.json("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    body = {"prompt": "hello", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    events = [e for _, e in engine.events("/v1/completions", body)]
    assert (
        "".join(e["choices"][0]["text"] for e in events) == engine.json("/v1/completions", body)["choices"][0]["text"]
    )
    assert events[-1]["choices"][0]["finish_reason"] == "length"


def test_flush_cache_forgets_prompts_and_is_refused_under_load(start):
    engine = start().until_ready()
    asked = {"text": "a prompt to remember", "sampling_params": {**GREEDY, "max_new_tokens": 2}}
    engine.json("/generate", asked)
    assert engine.json("/generate", asked)["meta_info"]["cached_tokens"] == 4
    assert engine.ask("/flush_cache")[0] == 200
    assert engine.json("/generate", asked)["meta_info"]["cached_tokens"] == 0


def test_metrics_exist_only_where_asked_for(start):
    engine = start("--enable-metrics", **FAST).until_ready()
    engine.json("/generate", {"text": "one", "sampling_params": GREEDY})
    text = engine.ask("/metrics")[1]
    assert 'sglang:generation_tokens_total{model_name="/models/tiny",rehearsal="true"} 24' in text
    assert start().until_ready().ask("/metrics")[0] == 404


def test_a_bad_body_is_refused_with_400(start):
    engine = start().until_ready()
    assert engine.ask("/generate", {"no": "prompt"})[0] == 400
    assert engine.ask("/v1/chat/completions", {})[0] == 400
    assert engine.ask("/nowhere")[0] == 404


def test_abort_cuts_a_running_request(start):
    engine = start().until_ready()
    body = json.dumps({"text": "x", "rid": "r1", "stream": True, "sampling_params": {**GREEDY, "max_new_tokens": 4000}})
    import urllib.request  # noqa: PLC0415

    with urllib.request.urlopen(engine.url + "/generate", body.encode(), timeout=10) as answer:
        answer.readline()
        assert engine.ask("/abort_request", {"rid": "r1"})[0] == 200
        last = [raw for raw in answer if raw.startswith(b"data: {")][-1]
    assert json.loads(last[6:])["meta_info"]["finish_reason"]["type"] == "abort"


def test_health_is_refused_then_503_then_200(start):
    """Connection refused while loading, 503 while warming up with /model_info already there, then 200."""
    engine = start(REHEARSAL_SPEED="0.06")
    with pytest.raises(urllib.error.URLError):
        engine.ask("/health")
    seen: list[tuple[int, int]] = []

    def well() -> bool:
        try:
            seen.append((engine.ask("/health")[0], engine.ask("/model_info")[0]))
        except OSError:
            return False
        return seen[-1][0] == 200

    engine.until(well)
    assert seen[0] == (503, 200)


def test_time_to_first_token_and_per_token_are_the_nominal_ones(start):
    """No token is early, and the lateness of a busy machine does not add up over an answer."""
    engine = start(REHEARSAL_TTFT_MS="60", REHEARSAL_TPOT_MS="8", REHEARSAL_TOKENS_PER_CHUNK="3").until_ready()
    late: list[list[float]] = []
    for attempt in range(4):
        body = {"text": f"prompt {attempt}", "sampling_params": {**GREEDY, "max_new_tokens": 61}}
        events = engine.events("/generate", body)
        assert [event["meta_info"]["completion_tokens"] for _, event in events[-2:]] == [58, 61]
        late.append([
            seconds * 1000 - 60 - 8 * (event["meta_info"]["completion_tokens"] - 1) for seconds, event in events
        ])  # fmt: skip
    assert min(min(one) for one in late) > -3
    assert min(one[0] for one in late) < 20
    assert min(min(one[-5:]) for one in late) < 20


def test_the_users_machine_yields_172_tokens_a_second_alone_and_half_as_many_again_with_speculation(start):
    rates = []
    for flags in ((), ("--speculative-algorithm", "NEXTN")):
        engine = start("--tp-size", "8", *flags, model="/models/Qwen3.5-397B-A17B-NVFP4").until_ready()
        best = 0.0
        for attempt in range(2):
            began = time.monotonic()
            body = {"text": f"{attempt} question " * 60, "sampling_params": {**GREEDY, "max_new_tokens": 128}}
            engine.json("/generate", body)
            best = max(best, 128 / (time.monotonic() - began))
        rates.append(best)
        engine.process.terminate()
    assert 140 < rates[0] < 180
    assert 1.25 < rates[1] / rates[0] < 1.8
