"""Verdicts from repeats that are made up, so that the right answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmark.statistics import ratio_interval
from report.confirmation import as_dict, as_markdown
from report.repeated_looks import ERROR, FIRST_LOOK, MOST_LAUNCHES, compare, confidence_at, share_spent
from report.verdict import Judge, Repeats


def repeats(name: str, *scores: float, c8: float = 1.0, **more: object) -> Repeats:
    """One configuration; at c8 every launch has ``c8`` times what it has at c1."""
    launches = tuple({"c1": score, "c8": score * c8} for score in scores)
    return Repeats(name, f"label of {name}", launches, name == "baseline", **more)  # type: ignore[arg-type]


BASELINE = repeats("baseline", 100, 101, 99)
FASTER = repeats("trial 1", 120, 121, 119)
AS_FAST = repeats("trial 2", 119.5, 121.5, 118.5)


def test_all_looks_together_spend_exactly_the_allowed_error() -> None:
    spent = sum(1 - confidence_at(launches) for launches in range(FIRST_LOOK, MOST_LAUNCHES + 1))
    assert spent == pytest.approx(ERROR)
    assert share_spent(MOST_LAUNCHES) == pytest.approx(1.0)
    assert share_spent(MOST_LAUNCHES + 5) == pytest.approx(1.0)


def test_what_is_clearly_faster_is_decided_at_the_first_look() -> None:
    found = compare([120, 121, 119], [100, 101, 99])
    assert found.decided
    assert found.launches == FIRST_LOOK
    assert found.sentence().startswith("faster by 20.0 %")


def test_a_decision_stands_whatever_later_launches_bring() -> None:
    found = compare([120, 121, 119, 50, 50], [100, 101, 99, 100, 100])
    assert found.interval.verdict == "faster"
    assert found.launches == FIRST_LOOK


def test_nearly_equal_configurations_are_decided_without_all_launches() -> None:
    found = compare([100.0, 100.02, 99.98], [100.01, 99.99, 100.0])
    assert found.decided
    assert found.interval.verdict == "cannot be told apart"


def test_before_the_first_look_nothing_is_decided_by_one_launch() -> None:
    found = compare([150], [100])
    assert not found.decided
    assert found.interval.verdict == "unknown"


def test_the_lightest_on_pcie_wins_among_those_tied_with_the_fastest() -> None:
    heavy = repeats("trial 1", 120, 121, 119, pcie_bytes_per_token=900.0)
    light = repeats("trial 2", 119.5, 121.5, 118.5, pcie_bytes_per_token=300.0)
    lightest_but_slow = repeats("baseline", 100, 101, 99, pcie_bytes_per_token=10.0)
    verdict = Judge(3).judge([lightest_but_slow, heavy, light])
    assert verdict.fastest is heavy
    assert verdict.winner is light
    assert {one.name for one in verdict.tied} == {"trial 1", "trial 2"}
    assert "lightest on PCIe" in verdict.headline


def test_without_traffic_the_fastest_wins_and_the_verdict_says_so() -> None:
    verdict = Judge(3).judge([BASELINE, FASTER, AS_FAST])
    assert verdict.winner is FASTER
    assert "was not counted" in verdict.headline
    assert "faster by 20" in verdict.headline


def test_without_traffic_and_proof_the_baseline_stays() -> None:
    verdict = Judge(2).judge([BASELINE, repeats("trial 1", 101, 103, 99)])
    assert verdict.fastest is not BASELINE
    assert verdict.winner is BASELINE
    assert "trial 1 cannot be told apart from it" in verdict.headline


def test_a_lighter_equal_wins_over_the_baseline_and_the_verdict_says_that_speed_is_no_reason() -> None:
    baseline = repeats("baseline", 100, 101, 99, pcie_bytes_per_token=900.0)
    light = repeats("trial 1", 101, 103, 99, pcie_bytes_per_token=90.0)
    verdict = Judge(2).judge([baseline, light])
    assert verdict.winner is light
    assert "cannot be told apart from the baseline" in verdict.headline


def test_who_misses_a_limit_cannot_win_however_fast() -> None:
    fast = repeats("trial 9", 200, 201, 199, out="it misses a limit: mean TTFT 900.0 ms at c8")
    verdict = Judge(3).judge([BASELINE, fast, FASTER])
    assert verdict.winner is FASTER
    assert fast in verdict.out
    assert fast not in verdict.tied


def test_when_all_miss_a_limit_nobody_wins_and_the_reason_is_named() -> None:
    verdict = Judge(2).judge([repeats("baseline", 100, out="it misses a limit: ITL")])
    assert verdict.winner is None
    assert "ITL" in verdict.headline


def test_a_slower_finalist_leaves_the_baseline_the_winner() -> None:
    verdict = Judge(2).judge([BASELINE, repeats("trial 3", 90, 91, 89)])
    assert verdict.winner is BASELINE
    assert verdict.headline.startswith("The baseline wins")
    assert verdict.against_baseline["trial 3"].interval.verdict == "slower"


def test_speculation_that_loses_everywhere_is_strictly_outperformed() -> None:
    verdict = Judge(2).judge([BASELINE, repeats("trial 3", 80, 81, 79, algorithm="NEXTN")])
    (line,) = verdict.speculation
    assert line.startswith("the baseline strictly outperforms NEXTN")
    assert "at every concurrency: c1 faster by" in line
    assert "c8 faster by" in line


def test_speculation_that_wins_at_one_concurrency_gets_a_verdict_for_each() -> None:
    mixed = repeats("trial 3", 150, 151, 149, c8=0.5, algorithm="NEXTN")
    (line,) = Judge(2).judge([BASELINE, mixed]).speculation
    assert "c1 faster by 50.0 %" in line
    assert "c8 slower by 25.0 %" in line
    assert "strictly" not in line


def test_speculation_on_is_compared_with_the_best_off_too() -> None:
    on = repeats("trial 3", 110, 111, 109, algorithm="NEXTN")
    lines = Judge(3).judge([BASELINE, FASTER, on]).speculation
    assert len(lines) == 2
    assert "speculation off (trial 1" in lines[1]


def test_whoever_is_decided_is_not_launched_again() -> None:
    noisy = repeats("trial 1", 118, 131, 109)
    slow = repeats("trial 2", 50, 50.5, 49.5)
    due = {one.name for one in Judge(3).due([BASELINE, noisy, slow])}
    assert due == {"baseline", "trial 1"}


def test_every_configuration_is_launched_thrice_and_none_beyond_the_most() -> None:
    judge = Judge(2, most=4)
    assert len(judge.due([repeats("baseline", 100), repeats("trial 1", 150)])) == 2
    noisy = [repeats("baseline", 100, 120, 90, 110), repeats("trial 1", 100, 121, 91, 111)]
    assert judge.due(noisy) == []


def test_who_is_out_is_not_launched_again() -> None:
    out = repeats("trial 1", 150, out="it failed when launched again")
    due = Judge(3).due([repeats("baseline", 100), out, repeats("trial 2", 120)])
    assert out not in due


def test_a_configuration_against_itself_is_called_different_in_at_most_five_of_a_hundred_cases() -> None:
    generator = np.random.default_rng(2)
    false = plain = 0
    for _ in range(200):
        first, second = (list(100 * np.exp(0.02 * generator.normal(size=MOST_LAUNCHES))) for _ in range(2))
        false += compare(first, second).interval.verdict != "cannot be told apart"
        plain += any(
            ratio_interval(first[:n], second[:n]).verdict != "cannot be told apart"
            for n in range(FIRST_LOOK, MOST_LAUNCHES + 1)
        )
    assert false <= 10
    assert plain > false


def test_the_report_says_everything_in_words_and_in_figures() -> None:
    everyone = [BASELINE, FASTER, AS_FAST]
    judge = Judge(3)
    verdict = judge.judge(everyone)
    text = as_markdown("night", judge, everyone, verdict, stopped_because="no time was left", rehearsal=True)
    assert "REHEARSAL" in text
    assert verdict.headline in text
    assert "no time was left" in text
    assert "**winner**" in text
    figures = as_dict(judge, everyone, verdict)
    assert figures["configurations"][1]["against_baseline"]["verdict"] == "faster"
    assert math.isclose(figures["configurations"][1]["against_baseline_by_level"]["c8"]["ratio"], 1.2, rel_tol=0.01)
