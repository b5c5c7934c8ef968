"""The score, and when a configuration is given up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.score_board import ScoreBoard
from search_spaces.objective import best_still_possible, score

rates = st.floats(min_value=0.1, max_value=1e5)


@given(st.dictionaries(st.sampled_from(["c1", "c4", "c16"]), rates, min_size=1))
def test_the_baseline_scores_one(throughput: dict[str, float]) -> None:
    assert score(throughput, throughput) == pytest.approx(1.0)


@given(rates, rates, st.floats(min_value=0.1, max_value=10))
def test_a_factor_at_every_level_is_the_score(first: float, second: float, factor: float) -> None:
    baseline = {"c1": first, "c8": second}
    assert score({"c1": first * factor, "c8": second * factor}, baseline) == pytest.approx(factor)


def test_gains_and_losses_multiply() -> None:
    assert score({"c1": 200, "c8": 50}, {"c1": 100, "c8": 100}) == pytest.approx(1.0)


def test_weights_decide_which_level_counts() -> None:
    faster_alone = {"c1": 200.0, "c8": 50.0}
    assert score(faster_alone, {"c1": 100, "c8": 100}, {"c1": 3, "c8": 1}) > 1
    assert score(faster_alone, {"c1": 100, "c8": 100}, {"c1": 1, "c8": 3}) < 1


def test_a_level_that_served_nothing_scores_zero() -> None:
    assert score({"c1": 200, "c8": 0}, {"c1": 100, "c8": 100}) == 0


def test_nothing_is_given_up_before_there_is_an_incumbent() -> None:
    assert ScoreBoard({}).hopeless({"c1": 0.1}) is None


def test_a_configuration_that_can_still_win_is_measured_on() -> None:
    board = ScoreBoard({})
    board.take({"c1": 100, "c8": 1000}, is_baseline=True)
    assert board.hopeless({"c1": 97}) is None


def test_a_configuration_that_cannot_win_any_more_is_given_up_with_its_bound() -> None:
    board = ScoreBoard({})
    board.take({"c1": 100, "c8": 1000}, is_baseline=True)
    bound = board.hopeless({"c1": 50})
    assert bound is not None
    assert bound == pytest.approx(best_still_possible({"c1": 50}, board.baseline, board.best_at_level))
    assert bound < 1


@given(rates, rates)
def test_the_bound_is_never_below_what_comes_out(first: float, second: float) -> None:
    board = ScoreBoard({})
    board.take({"c1": 100, "c8": 100}, is_baseline=True)
    bound = best_still_possible({"c1": first}, board.baseline, {"c1": 100, "c8": max(second, 100)})
    assert bound >= score({"c1": first, "c8": second}, board.baseline) * (1 - 1e-9)
