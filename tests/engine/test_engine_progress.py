"""Time left and the rank behind, from what earlier starts took."""

from __future__ import annotations

from engine.phase import Phase
from engine.progress import Spread, StartHistory, progress_of, rank_behind


def start(*seconds: float, rank: str = "TP0") -> list[Phase]:
    names = ("imports", "weights", "target graphs")
    return [Phase(rank, name, 0.0, taken, done=True) for name, taken in zip(names, seconds, strict=True)]


HISTORY = StartHistory.of([start(20, 50, 30), start(22, 60, 40), [*start(24, 40, 90), *start(24, 80, 90, rank="TP1")]])


def test_a_history_knows_median_and_spread_of_the_slowest_rank() -> None:
    assert HISTORY.spread("weights") == Spread(60, 50, 80, 3)
    assert HISTORY.spread("warm-up") is None


def test_a_history_forgets_what_is_older_than_twenty_starts() -> None:
    history = StartHistory.of([start(1, 1, 1)] * 30 + [start(9, 9, 9)] * 20)
    assert history.spread("imports") == Spread(9, 9, 9, 20)


def test_phases_that_did_not_end_teach_nothing() -> None:
    assert (
        StartHistory.of([[Phase("TP0", "weights", 0.0, None), Phase("TP0", "imports", 0.0, None, done=True)]]).seconds
        == {}
    )


def test_time_left_is_what_is_left_of_this_phase_and_all_of_the_later_ones() -> None:
    phases = [Phase("TP0", "imports", 0.0, 22.0, done=True), Phase("TP0", "weights", 22.0)]
    progress = progress_of(phases, False, 32.0, HISTORY)
    assert progress.eta_s == 50 + 40
    assert progress.eta_spread_s == (40 + 30, 70 + 90)
    assert progress.elapsed_s == 32.0


def test_a_bar_that_is_slower_than_the_history_is_believed() -> None:
    phases = [Phase("TP0", "weights", 0.0, progress=0.1)]
    assert progress_of(phases, False, 30.0, HISTORY).eta_s == 270 + 40


def test_a_phase_that_outlives_its_history_owes_nothing_more() -> None:
    assert progress_of([Phase("TP0", "target graphs", 0.0)], False, 500.0, HISTORY).eta_s == 0


def test_without_a_history_the_time_left_is_unknown() -> None:
    phases = [Phase("TP0", "weights", 0.0)]
    assert progress_of(phases, False, 5.0).eta_s is None
    assert progress_of(phases, False, 5.0, StartHistory()).eta_s is None


def test_a_ready_engine_has_no_time_left() -> None:
    assert progress_of(start(1, 2, 3), True, 9.0, HISTORY).eta_s == 0.0


def test_of_two_ranks_in_one_phase_the_one_that_has_not_ended_it_is_behind() -> None:
    ended, working = Phase("TP0", "weights", 0.0, 3.0, done=True), Phase("TP1", "weights", 0.0)
    assert rank_behind({"TP0": ended, "TP1": working}) == "TP1"
    assert rank_behind({"TP0": Phase("TP0", "target graphs"), "TP1": working}) == "TP1"
    assert rank_behind({"TP0": Phase("TP0", "draft graphs"), "TP1": Phase("TP1", "target graphs", done=True)}) is None
    assert rank_behind({"TP0": working}) is None


def test_progress_before_anything_was_read_is_empty() -> None:
    progress = progress_of([], False, None)
    assert (progress.current, progress.behind, progress.elapsed_s) == ({}, None, 0.0)
