"""Failures of the field are blamed as the facts blame them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from start_of_a_log import SIGQUIT, raised, stamped, traceback, up_to

from engine import knowledge
from engine.failure import Failure
from engine.logs import LogReader

FIELD: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent.parent / "fixtures" / "failures.yaml").read_text(encoding="utf-8")
)


def read(text: str) -> LogReader:
    reader = LogReader()
    reader.feed(text.encode())
    reader.finish()
    return reader


def failing_log(case: dict[str, Any]) -> str:
    text, before = case["text"], up_to(case["in"])
    match case["how"]:
        case "refusal" | "line":
            return f"{before}{text}\n" + (SIGQUIT if case["how"] == "line" else "")
        case "parent" | "death":
            return before + traceback(text)
        case "warm-up":
            return before + stamped(f"Initialization failed. warmup error: {traceback(text)}") + SIGQUIT
        case _:
            return before + raised("TP1", text) + SIGQUIT


@pytest.mark.parametrize("case", FIELD["failures"], ids=lambda case: f"row {case['row']}")
def test_a_failure_of_the_field_is_blamed_and_placed(case: dict[str, Any]) -> None:
    if case["how"] == "stall":
        failure = knowledge.classify(case["text"], case["in"], "TP0", stalled=True)
    else:
        found = read(failing_log(case)).failure()
        assert found is not None
        failure = found
    assert failure.blame in case["blame"]
    assert failure.phase == case["in"]
    assert failure.remedy
    assert "{" not in failure.remedy
    assert re.sub(r"^\[[^]]*\] +", "", case["text"])[:60] in failure.evidence


@pytest.mark.parametrize("case", FIELD["harmless"], ids=lambda case: f"row {case['row']}")
def test_noise_is_no_failure(case: dict[str, Any]) -> None:
    assert read(f"{up_to('target graphs')}{case['text']}\n").failure() is None
    found = read(
        f"{up_to('target graphs')}{case['text']}\n{raised('TP1', 'ValueError: in features size is not multiple of 16')}"
    )
    assert "in features" in found.failure().cause  # type: ignore[union-attr]


@pytest.mark.parametrize("case", FIELD["peers"], ids=lambda case: case["text"][:30])
def test_the_death_of_a_peer_is_never_the_cause(case: dict[str, Any]) -> None:
    mourning = raised("TP0", case["text"])
    cause = raised("TP1", "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.")
    for log in (mourning + cause + SIGQUIT, cause + mourning + SIGQUIT):
        failure = read(up_to("mamba and KV cache") + log).failure(-9)
        assert failure is not None
        assert (failure.rank, failure.blame) == ("TP1", "configuration")
    for status in (None, -9, 137):
        alone = read(up_to("target graphs") + mourning + SIGQUIT).failure(status)
        assert alone is not None
        assert alone.blame == "unknown"


def test_a_killed_parent_is_not_out_of_memory_where_a_rank_says_why() -> None:
    log = up_to("weights") + raised("TP0", "ValueError: in features size is not multiple of 16") + SIGQUIT
    failure = read(log).failure(137)
    assert failure is not None
    assert (failure.blame, failure.phase) == ("environment", "weights")
    assert "in features" in failure.cause


def test_an_engine_that_vanishes_without_a_word_is_judged_by_its_exit_status() -> None:
    killed = read(up_to("weights")).failure(-9)
    assert killed is not None
    assert (killed.blame, killed.phase) == ("environment", "weights")
    assert read(up_to("weights")).failure(1).blame == "unknown"  # type: ignore[union-attr]
    assert read(up_to("weights")).failure() is None


def test_a_ready_engine_that_was_asked_to_end_has_not_failed() -> None:
    for status in (None, 0, -15, 143):
        assert read(up_to("ready")).failure(status) is None
    assert read(up_to("ready")).failure(-9).phase == "serving"  # type: ignore[union-attr]


def test_a_request_that_went_wrong_is_not_the_end_of_the_engine() -> None:
    assert read(up_to("ready") + traceback("ValueError: Input length exceeds the context")).failure() is None


def test_a_traceback_that_the_start_survives_is_not_the_cause() -> None:
    log = up_to("arguments") + traceback("ImportError: libfoo.so: cannot open shared object file")
    assert read(log).failure() is not None
    assert read(log + up_to("weights")).failure() is None


def test_the_first_cause_on_the_earliest_rank_wins() -> None:
    log = (
        up_to("weights", ("TP0", "TP1", "TP2"))
        + raised("TP2", "ValueError: in features size is not multiple of 16")
        + raised("TP0", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")
        + SIGQUIT
    )
    failure = read(log).failure()
    assert failure is not None
    assert failure.rank == "TP2"


def test_an_unknown_exception_is_explained_by_what_was_printed_before_it() -> None:
    log = (
        up_to("distributed init")
        + "box:1:1 [0] NCCL WARN Error while creating shared memory segment /dev/shm/nccl-abc (size 1)\n"
        + raised("TP0", "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, unhandled system error")
        + SIGQUIT
    )
    failure = read(log).failure()
    assert failure is not None
    assert failure.blame == "environment"
    assert "/dev/shm" in failure.cause
    assert "DistBackendError" in failure.evidence


def test_what_is_unknown_is_kept_whole_and_shown_as_unknown() -> None:
    failure = read(
        up_to("weights") + raised("TP1", "FrobnicationError: the 7th gear of /opt/a/b is gone") + SIGQUIT
    ).failure()
    assert failure is not None
    assert (failure.blame, failure.remedy) == ("unknown", "")
    assert "Traceback" in failure.evidence
    assert "run_scheduler_process" in failure.evidence


def unknown(cause: str, phase: str = "weights", rank: str = "TP0") -> Failure:
    return Failure(rank, phase, cause, "unknown", "", cause)


def test_a_signature_leaves_out_numbers_paths_and_ranks() -> None:
    one = unknown("Gear 7 of /opt/a/b.py at 0xdeadbeef is gone after 1.5 s")
    other = unknown("Gear 12 of /srv/c/d.py at 0x12 is gone after 20 s", rank="TP3")
    assert knowledge.signature(one) == knowledge.signature(other)
    assert knowledge.signature(one) != knowledge.signature(unknown(one.cause, "target graphs"))


def test_several_different_configurations_that_fail_alike_are_the_environments_fault() -> None:
    failures = [("a", unknown("gear 1")), ("b", unknown("gear 2")), ("b", unknown("gear 3"))]
    assert knowledge.blame_over_launches(failures).blame == "unknown"
    assert knowledge.blame_over_launches([*failures, ("c", unknown("gear 9"))]).blame == "environment"
    assert knowledge.blame_over_launches([*failures, ("c", unknown("lever 9"))]).blame == "unknown"


def test_a_failing_baseline_is_the_environments_fault() -> None:
    found = knowledge.blame_over_launches([("base", unknown("gear"))], baseline_failed=True)
    assert found.blame == "environment"
    assert "baseline" in found.remedy


def test_a_kill_is_the_configurations_fault_where_the_baseline_runs() -> None:
    killed = read(up_to("weights")).failure(-9)
    assert killed is not None
    assert knowledge.blame_over_launches([("a", killed)]).blame == "environment"
    dead = read(up_to("weights") + "Killed\n").failure()
    assert dead is not None
    assert knowledge.blame_over_launches([("a", dead)], baseline_passed=True).blame == "configuration"


def test_every_row_says_what_it_knows_and_from_where() -> None:
    names = [row.name for row in knowledge.rows()]
    assert len(names) == len(set(names))
    for row in knowledge.rows():
        assert row.source, row.name
        assert row.remedy or row.blame in ("harmless", "unknown"), row.name
        assert row.cause or row.blame == "harmless", row.name


def test_every_literal_of_the_fixtures_passes_the_filter_of_the_reader() -> None:
    for case in FIELD["failures"]:
        if case["how"] == "line":
            assert read(f"{up_to('weights')}{case['text']}\n")._troubles.troubles, case["row"]
