"""The figures behind the report: hours, effects, failures, doubts."""

from __future__ import annotations

import math

import pytest

from report.effects import effects
from report.failure_groups import failure_groups
from report.hours import PARTS, hours, lasting, launch_hours
from report.level_figures import figures_of, overall, pairs
from report.study_record import StudyRecord
from report.trust import remarks
from storage import Store


def test_every_second_of_a_launch_is_in_exactly_one_part(real: StudyRecord, made: StudyRecord) -> None:
    for record in (real, made):
        for launch in record.launches:
            measured = [one.measurement for one in record.measurements.get(launch.id, ())]
            spent = launch_hours(launch, record.phases.get(launch.id, ()), measured)
            assert launch.ended_at is not None
            assert spent.total_s == pytest.approx(launch.ended_at - launch.started_at)
            assert all(seconds >= 0 for seconds in spent.seconds.values())


def test_the_parts_of_a_made_launch_are_what_was_made(made: StudyRecord) -> None:
    first = hours(made).launches[0]
    assert dict(first.seconds) == pytest.approx(
        {"imports": 10, "weights": 10, "graphs": 10, "benchmark": 30, "teardown": 4, "ours": 1}
    )


def test_the_whole_night_adds_up(made: StudyRecord) -> None:
    spent = hours(made)
    assert set(spent.seconds) == set(PARTS)
    last = made.launches[-1].ended_at
    assert last is not None
    assert spent.total_s + spent.paused_s == pytest.approx(last - made.launches[0].started_at)
    assert spent.failed_s == pytest.approx(70)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.51, "0.5 s"), (42, "42 s"), (432, "7 min 12 s"), (29040, "8 h 04 min")]
)
def test_a_duration_is_said_as_people_say_it(seconds: float, said: str) -> None:
    assert lasting(seconds) == said


def test_a_clear_effect_is_found_with_its_size(made: StudyRecord) -> None:
    strongest = effects(made)[0]
    assert "speculation=nextn" in strongest.label
    assert strongest.ratio["c1"] == pytest.approx(1.3, abs=0.03)
    assert strongest.is_clear("c1")


def test_settings_that_only_ever_changed_together_share_a_line(made: StudyRecord) -> None:
    labels = [effect.label for effect in effects(made)]
    assert labels.count("speculation=nextn steps=3") == 1


def test_failures_of_one_cause_are_one_group_whatever_their_numbers(made: StudyRecord) -> None:
    groups = failure_groups(made)
    assert groups[0].trials == (2, 3)
    assert groups[0].remedy == "lower --mem-fraction-static"
    assert groups[0].phase == "target graphs"
    assert [group.trials for group in groups[1:]] == [(6,)]


def test_an_interrupted_trial_is_no_failure_of_the_configuration(real: StudyRecord) -> None:
    (group,) = failure_groups(real)
    assert group.trials == (6,)
    assert group.blame == "transient"


def test_launches_after_the_choice_are_averaged_without_the_one_that_chose(made: StudyRecord) -> None:
    found = figures_of(made, 1)
    assert found["c1"].launches == 3
    assert len(made.measured_launches(1)) == 4
    assert found["c1"].throughput == pytest.approx(130, rel=1e-3)
    assert found["c1"].memory_left_gb == 19.0


def test_the_whole_interval_is_the_weighted_mean_of_the_levels(made: StudyRecord, made_store: Store) -> None:
    levels = pairs(made, made_store, 0, 1)
    whole = overall(made, made_store, 0, 1, levels)
    assert whole is not None
    assert whole.mid == pytest.approx(math.exp((math.log(1.3) + 3 * math.log(1.1)) / 4), rel=1e-6)
    assert not whole.within_one_launch


def test_a_level_that_was_not_measured_leaves_no_whole_interval(real: StudyRecord, real_store: Store) -> None:
    levels = pairs(real, real_store, 0, 1)
    assert [pair.other is None for pair in levels] == [False, False, True, True]
    assert levels[0].interval is not None
    assert levels[0].interval.within_one_launch
    assert overall(real, real_store, 0, 1, levels) is None


def test_doubts_are_said_gravest_first(real: StudyRecord, real_store: Store) -> None:
    found = remarks(real, real_store)
    assert found[0].sentence.startswith("The baseline was not steady after its warm-up at c1")
    assert [one.weight for one in found] == sorted((one.weight for one in found), key=("caution", "note", "good").index)
    assert any("baseline ran once only" in one.sentence for one in found)


def test_repeated_launches_are_said_to_show_noise_and_drift(made: StudyRecord, made_store: Store) -> None:
    sentences = " ".join(one.sentence for one in remarks(made, made_store))
    assert "figures come from 3 launches, the winner's from 3 launches" in sentences
    assert "differ by 1.0 %" in sentences
    assert "the baseline moved +1.0 %" in sentences
