"""The two tiny languages of a space: conditions, and whole-number expressions."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.conditions import parse_condition
from search_spaces.derivation import parse_expression
from search_spaces.values import Value, read_plain, same, shown

NAMES = st.sampled_from(["a", "b", "steps", "top_k"])
ASSIGNED = {"a": 3, "b": -2, "steps": 7, "top_k": 0}


def expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    both = st.tuples(inner, inner)
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", " + ", " - ", " * "]), inner).map("".join),
        inner.map(lambda one: f"({one})"),
        inner.map(lambda one: f"-{one}"),
        both.map(lambda two: f"min({two[0]}, {two[1]})"),
        both.map(lambda two: f"max({two[0]},{two[1]})"),
    )


EXPRESSIONS = st.recursive(st.one_of(NAMES, st.integers(0, 99).map(str)), expressions, max_leaves=8).filter(
    lambda text: len(text) <= 200
)


@given(EXPRESSIONS)
def test_an_expression_means_what_arithmetic_says(text: str) -> None:
    # Python's own reading of the same text, of nothing but what was generated above.
    expected = eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(ASSIGNED))
    expression = parse_expression(text)
    assert expression.value(ASSIGNED) == expected
    for name in expression.names:
        assert expression.value({**ASSIGNED, name: None}) is None
        assert expression.value({**ASSIGNED, name: True}) is None


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_refused_in_one_sentence(text: str) -> None:
    try:
        expression = parse_expression(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - most texts are no expressions, and none may fail otherwise
    else:
        assert isinstance(expression.value(dict.fromkeys(expression.names, 1)), int)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "steps steps",
        "steps.real",
        "a / b",
        "min(",
        "max()",
        "f(1)",
        "2 ** 3",
        "(1",
        "1)",
        "+" * 9,
        "(" * 300,
        None,
        True,
        1.5,
    ],
)
def test_what_is_no_expression_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_expression(text)


NUMBERS = st.integers(-20, 20)


@given(NUMBERS, NUMBERS, st.sampled_from(["<", "<=", ">", ">="]))
def test_a_comparison_orders_numbers(value: int, bound: int, comparison: str) -> None:
    meaning = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[comparison]
    condition = parse_condition({"a": f"{comparison} {bound}"})
    assert condition.holds({"a": value}) == meaning(value, bound)
    assert parse_condition({"a": f"{comparison} b + 0"}).holds({"a": value, "b": bound}) == meaning(value, bound)


VALUES = st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.sampled_from(["LL", "off", "Ring"]))


@given(VALUES, st.lists(VALUES, min_size=1, max_size=4))
def test_a_list_holds_for_its_values_only(value: Value, listed: list[Value]) -> None:
    assert parse_condition({"a": listed}).holds({"a": value}) == any(same(value, one) for one in listed)


@given(VALUES, VALUES)
def test_equal_and_unequal_are_opposites_of_active_parameters(one: Value, other: Value) -> None:
    equal, unequal = (parse_condition({"a": f"{sign} {shown(other)}"}) for sign in ("==", "!="))
    assert equal.holds({"a": one}) != unequal.holds({"a": one})
    assert equal.holds({"a": other})
    assert not equal.holds({})
    assert not unequal.holds({})


def test_all_lines_must_hold_and_one_alternative_is_enough() -> None:
    condition = parse_condition([{"a": 1, "b": [2, 3]}, {"c": "unset"}])
    assert condition.holds({"a": 1, "b": 3})
    assert not condition.holds({"a": 1, "b": 4})
    assert condition.holds({"a": 9, "c": None})
    assert condition.names == {"a", "b", "c"}
    assert condition.text() == "a == 1 and b == 2, 3 or c == unset"


def test_order_is_never_asked_of_words_truths_or_nothing() -> None:
    for value in ("LL", True, None):
        assert not parse_condition({"a": ">= 0"}).holds({"a": value})
    assert not parse_condition({"a": "> b"}).holds({"a": 1, "b": None})
    assert parse_condition({"a": "<= 0.85"}).holds({"a": 0.8})


@pytest.mark.parametrize(
    "source", [None, 3, "nextn", [], {}, [{}], [[{"a": 1}]], {"a": {"b": 1}}, {"a": []}, {"a": ">= 2 2"}, {"a": "=="}]
)
def test_what_is_no_condition_is_refused(source: object) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_condition(source)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("true", True),
        ("null", None),
        ("", None),
        ("12", 12),
        ("-0.5", -0.5),
        ("1e-5", 1e-5),
        ("1_000", "1_000"),
        ("0x1f", "0x1f"),
    ],
)
def test_plain_words_mean_what_yaml_1_2_says(text: str, value: object) -> None:
    assert read_plain(text) == value
    assert type(read_plain(text)) is type(value)
