"""Assignments: completed, labelled, held against the rules, and turned into configurations."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from search_spaces import Space, SpaceError
from search_spaces.reader import parse
from search_spaces.values import Value

TEXT = """\
name: small
description: a space for these tests
model: {path: some/model}
engine: {flags: {--disable-radix-cache: true, --page-size: 1}}
parameters:
  - {name: speculation, note: a, sets: {off: {}, nextn: {--speculative-algorithm: NEXTN, --page-size: unset}}}
  - {name: steps, note: a, flag: --steps, when: {speculation: nextn}, range: {low: 1, high: 5}, default: 3}
  - {name: topk, note: a, flag: --speculative-eagle-topk, when: {steps: "> 1"}, values: [1, 2]}
  - {name: radix, note: a, flag: --disable-radix-cache, values: [true, false]}
  - {name: proto, note: a, env: NCCL_PROTO, values: [unset, LL]}
  - {name: share, note: a, flag: --mem-fraction-static, range: {low: 0.1, high: 0.9, log: true}, default: 0.5}
derived:
  - {flag: --draft, derive: steps * topk + 1, note: a}
  - {env: ROWS, derive: "max(steps, 2) - 1", when: {proto: LL}, note: a}
rules:
  - {name: hang, forbid: [{proto: LL, steps: "> 4"}, {topk: 2, radix: false}], reason: it hangs.}
benchmark: {levels: [{concurrency: 1, weight: 2}]}
"""


@pytest.fixture(scope="module")
def space() -> Space:
    return parse(TEXT, "small.yaml", Path("/nowhere"), {})


def test_defaults_are_filled_in_and_inactive_parameters_dropped(space: Space) -> None:
    assert space.complete({}) == {"speculation": "off", "radix": True, "proto": None, "share": 0.5}
    assert space.complete({"speculation": "nextn", "steps": 1, "topk": 2}) == {
        "speculation": "nextn",
        "steps": 1,
        "radix": True,
        "proto": None,
        "share": 0.5,
    }


def test_a_parameter_that_hangs_on_an_inactive_one_is_inactive(space: Space) -> None:
    assert "topk" not in space.complete({"steps": 4, "topk": 2})


@pytest.mark.parametrize(
    ("assignment", "sentence"),
    [
        ({"stepz": 3}, "stepz: the space small has no parameter of this name; did you mean 'steps'?"),
        ({"steps": 6}, "steps: 6 is none of its values; take one of 1 to 5"),
        ({"steps": 2.5}, "steps: 2.5 is none of its values"),
        ({"steps": True}, "steps: true is none of its values"),
        ({"radix": 1}, "radix: 1 is none of its values; take one of true, false"),
    ],
)
def test_a_wrong_assignment_is_refused_in_one_sentence(space: Space, assignment: dict, sentence: str) -> None:
    with pytest.raises(SpaceError) as caught:
        space.complete(assignment)
    assert str(caught.value).startswith(sentence)


def test_an_unset_value_and_a_false_one_take_the_base_flag_away(space: Space) -> None:
    assert space.configuration({}).flags["--page-size"] == 1
    flags = space.configuration({"speculation": "nextn", "radix": False}).flags
    assert "--page-size" not in flags
    assert "--disable-radix-cache" not in flags


def test_what_is_derived_follows_and_is_left_out_where_it_cannot(space: Space) -> None:
    assert "--draft" not in space.configuration({}).flags
    assert "--draft" not in space.configuration({"speculation": "nextn", "steps": 1}).flags  # topk is inactive
    whole = space.configuration({"speculation": "nextn", "steps": 3, "topk": 2, "proto": "LL"})
    assert whole.flags["--draft"] == 7
    assert whole.environment == {"NCCL_PROTO": "LL", "ROWS": "2"}


def test_a_rule_is_broken_by_any_of_its_alternatives(space: Space) -> None:
    nextn: dict[str, Value] = {"speculation": "nextn", "steps": 5}
    assert space.broken_rule(nextn) is None
    assert space.broken_rule({**nextn, "proto": "LL"}) == "hang: it hangs."
    assert space.broken_rule({**nextn, "topk": 2, "radix": False}) == "hang: it hangs."
    assert space.broken_rule({"steps": 5, "proto": "LL"}) is None  # steps are inactive without speculation


def test_a_label_says_what_differs(space: Space) -> None:
    assert space.label({}) == "baseline"
    assert space.label({"speculation": "nextn"}) == "speculation=nextn steps=3 topk=1"
    before = {"speculation": "nextn", "proto": "LL"}
    assert space.label({"speculation": "nextn", "radix": False}, before) == "radix=false proto=unset"
    assert space.label(before, before) == "no change"


def test_distributions_are_optunas(space: Space) -> None:
    assert space.parameter("steps").distribution() == IntDistribution(1, 5)
    assert space.parameter("share").distribution() == FloatDistribution(0.1, 0.9, log=True)
    assert space.parameter("proto").distribution() == CategoricalDistribution((None, "LL"))


def test_trials_of_a_stored_study_are_read_back_alike(space: Space) -> None:
    study = optuna.create_study(storage="sqlite:///:memory:", sampler=optuna.samplers.RandomSampler(seed=3))
    study.enqueue_trial(space.fixed({"speculation": "nextn", "proto": "LL"}))
    assignments = [space.suggest(study.ask()) for _ in range(12)]
    assert assignments[0]["proto"] == "LL"
    assert [trial.params for trial in study.trials] == assignments


def test_the_plan_has_neither_weights_nor_limits(space: Space) -> None:
    plan = space.benchmark.plan()
    assert plan["levels"] == ({"concurrency": 1, "prompt_tokens": None, "output_tokens": 256, "requests": None},)
    assert "limits" not in plan


def test_a_space_cannot_be_changed(space: Space) -> None:
    with pytest.raises(ValueError, match="frozen"):
        setattr(space, "name", "other")  # noqa: B010 - as an attribute the type checker would refuse it
