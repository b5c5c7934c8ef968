"""The client against a server whose true figures are known, and against one that does wrong."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator

import pytest
from known_server_process import ahead_of_others, known_server, lateness_ms

from benchmark.load import measure
from benchmark.observers import AnswerSample, Observer
from benchmark.plan import Plan
from benchmark.prompt_source import PromptSource
from benchmark.prompts import Prompt, load
from benchmark.results import Level, Measurement

COLD = Plan(warm_up_s=0, request_timeout_s=20)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with known_server() as (address, _):
        yield address


def source(*texts: str) -> PromptSource:
    return PromptSource([Prompt(text) for text in texts] or load())


def measured(url: str, text: str, plan: Plan = COLD, requests: int = 2) -> Measurement:
    return measure(url, Level(1, None, 30, requests), source(text), plan)


# A server that misses its own deadlines by more, in the mean, is no truth to hold a client against.
TRUSTED_LATENESS_MS = 1.5


@pytest.mark.parametrize("endpoint", ["/generate", "/v1/completions", "/v1/chat/completions"])
def test_first_token_within_8_ms_and_time_per_token_within_3_percent_at_concurrency_16(endpoint: str) -> None:
    plan = Plan(warm_up_s=1, warm_up_window_s=0.2, endpoint=endpoint)
    late: list[float] = []
    with known_server() as (address, process), ahead_of_others(process.pid):
        for _ in range(4):
            result = measure(address, Level(16, None, 96, 48), source(), plan)
            assert (result.completed, result.failed) == (48, 0)
            late.append(lateness_ms(address))
            # Neighbours on the machine only ever make it later: the quietest of a few runs is what the client can do.
            if is_exact(result):
                break
    if not is_exact(result) and min(late) > TRUSTED_LATENESS_MS:
        pytest.skip(f"the machine is so busy that the server was {min(late):.1f} ms late itself, at best")
    assert result.ttft_ms
    assert result.tpot_ms
    assert result.itl_ms
    assert 20 <= result.ttft_ms.mean <= 28
    assert result.tpot_ms.mean == pytest.approx(5, rel=0.03)
    assert result.itl_ms.mean == pytest.approx(5, rel=0.03)
    # 16 in flight, each 20 ms and then 93 tokens of 5 ms
    assert result.output_throughput == pytest.approx(16 * 96 / (0.020 + 93 * 0.005), rel=0.06)
    assert all(len(sample.itl_ms) == 93 for sample in result.samples)


def is_exact(result: Measurement) -> bool:
    if result.ttft_ms is None or result.tpot_ms is None:
        return False
    return result.ttft_ms.mean <= 28 and abs(result.tpot_ms.mean / 5 - 1) <= 0.03


def test_exactly_so_many_requests_are_in_flight(url: str) -> None:
    result = measure(url, Level(4, None, 12, 12), source(), COLD)
    spans = [(sample.started_s, sample.started_s + sample.latency_ms / 1e3) for sample in result.samples]
    together = [sum(begin <= start < end for begin, end in spans) for start, _ in spans]
    assert max(together) == 4
    assert result.completed == 12


def test_acceptance_is_read_for_each_request(url: str) -> None:
    result = measured(url, "plain")
    assert [sample.acceptance_length for sample in result.samples] == [pytest.approx(30 / 9)] * 2
    assert result.acceptance_length == pytest.approx(30 / 9)
    assert result.acceptance_rate == pytest.approx(2 / 3)


def test_warm_up_ends_once_throughput_is_steady_and_its_requests_do_not_count(url: str) -> None:
    result = measure(url, Level(4, None, 30, 8), source(), Plan(warm_up_s=20, warm_up_window_s=0.25))
    assert result.steady
    assert 0.5 < result.warm_up_s < 15
    assert result.completed == len(result.samples) == 8


def test_a_warm_up_that_does_not_become_steady_is_said(url: str) -> None:
    plan = Plan(warm_up_s=0.3, warm_up_window_s=0.2, warm_up_windows=20)
    result = measure(url, Level(1, None, 12, 2), source(), plan)
    assert not result.steady
    assert any("not steady" in note for note in result.notes)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STATUS500", "HTTP 500: oops"),
        ("HANGUP", "Server disconnected"),
        ("BADJSON", "not JSON"),
        ("ODDJSON", "has not the form expected"),
        ("LISTJSON", "no JSON object"),
        ("ERROREVENT", "out of memory"),
        ("ABORT", "aborted"),
        ("TRUNCATE", "broke off after 3 tokens"),
        ("CUT", "payload is not completed"),
    ],
)
def test_what_goes_wrong_with_a_request_is_counted_and_not_raised(url: str, word: str, reason: str) -> None:
    result = measured(url, f"please {word}")
    assert (result.completed, result.failed) == (0, 2)
    assert result.output_throughput == 0
    assert result.ttft_ms is None
    assert reason in str(result.samples[0].error)
    assert reason in result.notes[0]


def test_failed_requests_leave_the_figures_of_the_others_alone(url: str) -> None:
    level = Level(2, None, 30, 8)
    result = measure(url, level, source(*["good one", "bad one: TRUNCATE"] * 1), COLD)
    assert result.completed + result.failed == 8
    assert result.failed > 0
    assert result.output_throughput == pytest.approx(30 * result.completed / result.duration_s)


def test_a_silent_server_times_out(url: str) -> None:
    result = measured(url, "SILENT", Plan(warm_up_s=0, request_timeout_s=0.2))
    assert result.failed == 2
    assert result.samples[0].error == "timed out after 0.2 s"


def test_a_refused_connection_is_a_failed_request_and_failures_only_end_the_level_early() -> None:
    began = time.monotonic()
    result = measure("http://127.0.0.1:9", Level(4, None, 8, 5000), source("x"), Plan(warm_up_s=30))
    assert time.monotonic() - began < 10
    assert result.completed == 0
    assert result.failed < 50
    assert any("nearly all failed" in note for note in result.notes)


def test_events_split_over_many_packets_are_read_whole(url: str) -> None:
    result = measured(url, "DRIBBLE")
    assert result.completed == 2
    assert all(sample.output_tokens == 30 for sample in result.samples)


def test_tokens_are_shared_out_by_text_where_the_server_gives_no_running_counts(url: str) -> None:
    result = measured(url, "NORUNNING", COLD.model_copy(update={"endpoint": "/v1/completions"}))
    assert [sample.output_tokens for sample in result.samples] == [30, 30]
    assert [len(sample.itl_ms) for sample in result.samples] == [27, 27]


def test_without_usage_no_token_is_counted_from_chunks(url: str) -> None:
    plan = COLD.model_copy(update={"endpoint": "/v1/completions"})
    result = measured(url, "NOUSAGE NORUNNING", plan)
    assert result.failed == 2
    assert "no usage" in str(result.samples[0].error)


def test_what_check_raises_ends_a_measurement_at_once(url: str) -> None:
    began = time.monotonic()

    def check() -> None:
        if time.monotonic() - began > 0.3:
            raise RuntimeError("the engine died")

    with pytest.raises(RuntimeError, match="the engine died"):
        measure(url, Level(2, None, 30, 4), source("SILENT"), COLD, check)
    assert time.monotonic() - began < 3


def test_a_server_killed_under_load_raises_nothing() -> None:
    with known_server() as (address, process):
        killed: list[subprocess.Popen[str]] = []

        class Killer(Observer):
            def answered(self, *_: object) -> None:
                if not killed:
                    process.kill()
                    killed.append(process)

        result = measure(address, Level(4, None, 30, 40), source(), COLD, observers=[Killer()])
    assert result.completed >= 1
    assert result.failed >= 1


def test_measuring_works_inside_a_running_event_loop(url: str) -> None:
    async def within() -> Measurement:
        return measured(url, "plain")

    assert asyncio.run(within()).completed == 2


def test_observers_see_the_measured_window_and_add_their_figures(url: str) -> None:
    class Traffic(Observer):
        calls: list[str]

        def before_start(self) -> None:
            self.calls = ["before"]

        def answered(self, prompt: Prompt, text: str, sample: object) -> None:
            assert text.startswith("alpha beta gamma")
            self.calls.append("answer")

        def after_finish(self) -> dict[str, object]:
            self.calls.append("after")
            return {"pcie_bytes": 6000.0, "nvlink_bytes_per_token": 7.0, "notes": ["counters were read 300 times"]}

    traffic = Traffic()
    result = measure(
        url, Level(1, None, 30, 2), source(), Plan(warm_up_s=0.3, warm_up_window_s=0.1), observers=[traffic]
    )
    assert traffic.calls == ["before", "answer", "answer", "after"]
    assert result.pcie_bytes_per_token == 100
    assert result.nvlink_bytes_per_token == 7
    assert "counters were read 300 times" in result.notes


def test_a_sample_of_the_answers_under_load_is_kept(url: str) -> None:
    kept = AnswerSample(most=3)
    measure(url, Level(2, None, 6, 5), source(), COLD, observers=[kept])
    assert kept.texts == ["alpha beta gamma alpha beta gamma "] * 3


def test_prompts_are_brought_to_the_length_asked_for_as_the_server_counts(url: str) -> None:
    result = measure(url, Level(1, 500, 3, 4), source(), COLD)
    assert all(sample.prompt_tokens == pytest.approx(500, rel=0.05) for sample in result.samples)
    assert any("tokens in the mean for 500 asked for" in note for note in result.notes)


def test_a_level_goes_on_for_its_least_time_and_stops_at_its_longest(url: str) -> None:
    longer = measured(url, "plain", COLD.model_copy(update={"min_level_s": 0.6}))
    assert longer.completed > 2
    shorter = measured(url, "plain", COLD.model_copy(update={"max_level_s": 0.3}), requests=100)
    assert 0 < shorter.completed < 10
    assert any("time was over" in note for note in shorter.notes)


def test_the_api_key_is_sent_and_its_name_alone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIETLANE_TEST_KEY", "a secret")
    plan = Plan(api_key_env="QUIETLANE_TEST_KEY")
    assert plan.headers() == {"Authorization": "Bearer a secret"}
    assert "a secret" not in plan.model_dump_json()
