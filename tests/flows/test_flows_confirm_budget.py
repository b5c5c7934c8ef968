"""Budgets and deadlines."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from flows.budget import Budget, LaunchTimes, deadline, improbable_gain

NOW = datetime(2026, 11, 30, 23, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("07:30 Europe/Berlin", "2026-12-01T06:30"),
        ("23:30 UTC", "2026-11-30T23:30"),
        ("23:30 Europe/Berlin", "2026-12-01T22:30"),
        ("2026-12-02 07:30 Asia/Kolkata", "2026-12-02T02:00"),
        ("2026-12-02T07:30+05:30", "2026-12-02T02:00"),
        ("7:30Z", "2026-12-01T07:30"),
    ],
)
def test_a_deadline_is_a_moment_in_its_timezone(text: str, means: str) -> None:
    assert deadline(text, NOW).astimezone(UTC).isoformat().startswith(means)


def test_a_time_that_the_clocks_skip_lies_after_the_gap() -> None:
    evening = datetime(2027, 3, 27, 20, 0, tzinfo=ZoneInfo("Europe/Berlin"))
    assert deadline("02:30 Europe/Berlin", evening).astimezone(UTC).isoformat() == "2027-03-28T01:30:00+00:00"


@pytest.mark.parametrize("text", ["soon", "25:00", "07:30 Europe/Nowhere", "2020-01-01 07:30 UTC", "2026-13-01 07:30"])
def test_a_deadline_that_cannot_be_met_or_read_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"deadline|timezone|passed"):
        deadline(text, NOW)


def times(*seconds: float) -> LaunchTimes:
    found = LaunchTimes()
    for second in seconds:
        found.add("any", second)
    return found


def test_no_launch_starts_that_its_history_says_cannot_end_in_time() -> None:
    history = times(300, 310, 290)
    history.add("slow one", 900.0)
    budget = Budget(began=0.0, ends=1000.0)
    assert budget.spent(3, 500.0, history, "any") is None
    sentence = budget.spent(3, 500.0, history, "slow one")
    assert sentence is not None
    assert "15 min" in sentence


def test_time_for_confirming_is_kept_back_but_at_most_a_third() -> None:
    history = times(100.0, 100.0)
    assert Budget(began=0, ends=10_000, keep_back=15).kept_back_s(history) == 1500
    assert Budget(began=0, ends=3_000, keep_back=15).kept_back_s(history) == 1000
    assert Budget(began=0, ends=10_000, keep_back=15).spent(1, 8_450, history) is not None
    assert Budget(began=0, ends=10_000).spent(1, 8_450, history) is None


def test_the_number_of_launches_is_a_budget_too() -> None:
    assert Budget(launches=3).spent(2, 0.0, times()) is None
    assert Budget(launches=3).spent(3, 0.0, times()) is not None
    assert Budget(launches=30, began=0, ends=1000).launches_left(0, 500, times(100)) == 5


def test_a_search_ends_early_only_when_a_gain_has_become_improbable() -> None:
    found_late = [1.0] * 40 + [1.2]
    found_early = [1.0, 1.2] + [1.1, None] * 40
    assert improbable_gain(found_late, 5) is None
    assert improbable_gain(found_early, 40) is None
    sentence = improbable_gain(found_early, 10)
    assert sentence is not None
    assert "80 trials" in sentence
    assert improbable_gain(found_early[:15], 1) is None
    assert improbable_gain(found_early, None) is None
