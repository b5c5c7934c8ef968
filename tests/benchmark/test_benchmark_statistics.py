"""Whether two throughputs differ."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmark.figures import acceptance, is_steady, measurement_of
from benchmark.plan import Plan
from benchmark.results import Level, Measurement, RequestSample
from benchmark.statistics import launches_interval, ratio_interval, relative_half_width


def launch(rate: float, seed: int, noise: float = 0.1, requests: int = 64) -> Measurement:
    """A measurement at concurrency 4 whose requests take 100 tokens / rate seconds each, more or less."""
    generator = np.random.default_rng(seed)
    level = Level(4, None, 100, requests)
    free = [0.0] * 4
    samples = []
    for _ in range(requests):
        slot = free.index(min(free))
        seconds = 400 / rate * float(generator.lognormal(0, noise))
        samples.append(RequestSample(free[slot], seconds * 1e3, 10, 50, 100))
        free[slot] += seconds
    duration = max(free)
    return measurement_of(level, samples, started_at=0, duration_s=duration, warm_up_s=1, steady=True, plan=Plan())


def test_a_difference_beyond_the_launches_spread_is_a_verdict_with_its_interval() -> None:
    interval = ratio_interval([110, 111, 109], [100, 101, 99])
    assert interval.verdict == "faster"
    assert interval.low is not None
    assert interval.high is not None
    assert interval.low < 1.1 < interval.high
    assert interval.sentence().startswith("faster by 10.0 % (")
    back = ratio_interval([100, 101, 99], [110, 111, 109])
    assert back.verdict == "slower"
    assert back.sentence().startswith("slower by 9.1 % (")


def test_a_difference_within_the_spread_cannot_be_told_apart() -> None:
    interval = ratio_interval([100, 108, 95], [101, 97, 106])
    assert interval.verdict == "cannot be told apart"
    assert "cannot be told apart" in interval.sentence()


def test_a_configuration_against_itself_differs_in_at_most_five_percent_of_cases() -> None:
    generator = np.random.default_rng(7)
    wrong = 0
    for _ in range(400):
        a, b = np.exp(generator.normal(7, 0.02, (2, 4)))
        wrong += ratio_interval(a.tolist(), b.tolist()).verdict != "cannot be told apart"
    assert wrong / 400 <= 0.07


def test_with_one_launch_a_side_and_nothing_else_the_interval_is_unknown() -> None:
    interval = ratio_interval([110], [100])
    assert (interval.low, interval.high, interval.verdict) == (None, None, "unknown")
    assert interval.mid == pytest.approx(1.1)
    assert "interval unknown" in interval.sentence()


def test_with_one_launch_a_side_the_noise_within_it_gives_an_interval_that_says_so() -> None:
    fast, slow = launch(130, 1), launch(100, 2)
    interval = ratio_interval([fast.output_throughput], [slow.output_throughput], within=(fast, slow))
    assert interval.within_one_launch
    assert interval.verdict == "faster"
    assert "within one launch" in interval.sentence()
    twin = ratio_interval([launch(100, 3).output_throughput], [slow.output_throughput], within=(launch(100, 3), slow))
    assert twin.verdict == "cannot be told apart"


def test_the_interval_within_a_launch_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for seed in range(40):
        a, b = launch(100, 2 * seed), launch(100, 2 * seed + 1)
        interval = ratio_interval([a.output_throughput], [b.output_throughput], within=(a, b))
        covered += interval.verdict == "cannot be told apart"
    assert covered >= 35


def test_too_short_a_launch_has_no_interval_within_it() -> None:
    short = launch(100, 1, requests=4)
    assert relative_half_width(short) is None
    assert ratio_interval([100], [100], within=(short, short)).verdict == "unknown"
    assert 0 < (relative_half_width(launch(100, 1)) or 0) < 0.1


def test_several_launches_on_one_side_lend_their_spread_to_the_other() -> None:
    interval = ratio_interval([120], [100, 101, 99, 100])
    assert interval.verdict == "faster"
    assert not interval.within_one_launch
    assert ratio_interval([101], [100, 103, 97]).verdict == "cannot be told apart"


def test_equal_launches_are_not_told_apart_and_launches_without_throughput_are_refused() -> None:
    assert ratio_interval([100, 100], [100, 100]).verdict == "cannot be told apart"
    with pytest.raises(ValueError, match="leave failed launches out"):
        ratio_interval([0, 100], [100, 100])
    with pytest.raises(ValueError, match="at least one launch"):
        ratio_interval([], [100])


def test_one_configuration_has_an_interval_from_two_launches_on() -> None:
    assert launches_interval([100]) is None
    interval = launches_interval([100, 104, 98])
    assert interval is not None
    assert interval[0] < 100.6 < interval[1]


def test_throughput_is_steady_once_the_last_windows_agree() -> None:
    assert not is_steady([100, 101], 3, 10)
    assert not is_steady([50, 100, 101], 3, 10)
    assert is_steady([50, 100, 101, 99], 3, 10)
    assert not is_steady([0, 0, 0], 3, 10)


def test_acceptance_counts_each_request_by_its_verification_steps() -> None:
    sample = RequestSample(0, 100, 10, 5, 100, acceptance_length=4, acceptance_rate=1)
    other = dataclasses.replace(sample, output_tokens=25, acceptance_length=1, acceptance_rate=0)
    length, rate = acceptance([sample, other, dataclasses.replace(sample, acceptance_length=None)])
    assert length == pytest.approx(125 / 50)
    assert rate == pytest.approx(0.5)
    assert acceptance([]) == (None, None)
