"""Regular expressions are those of RE2, and need time in proportion to the text."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.conditions import Pattern, expand, text_of


def test_an_expression_is_found_anywhere_in_the_text() -> None:
    assert Pattern("b+").is_found_in("abbc")
    assert not Pattern("^b").is_found_in("abbc")
    assert Pattern("é").is_found_in("café")


@given(st.text(alphabet="ab01.-", max_size=300))
def test_results_are_those_of_python_where_the_syntax_is_the_same(text: str) -> None:
    for expression in ("^a.*b$", "(a|b)+[0-9]", r"\.", "^$"):
        assert Pattern(expression).is_found_in(text) == (re.search(expression.replace("$", r"\Z"), text) is not None)


def test_an_expression_that_takes_exponential_time_elsewhere_ends_at_once() -> None:
    started = time.process_time()
    assert not Pattern("^(x+x+)+y").is_found_in("x" * 10_000_000)
    assert time.process_time() - started < 5  # Python's `re` would need years


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert Pattern("end").is_found_in("x" * 65_000 + "end")
    assert not Pattern("end").is_found_in("x" * 65_536 + "end")


def test_groups_have_names_and_a_group_without_a_part_is_empty() -> None:
    pattern = Pattern("(?P<kind>gpu|cpu)(?P<unit>\\.W)?(.)")
    assert pattern.names == ("kind", "unit", "")
    assert pattern.groups_in("my cpu!") == ("cpu!", "cpu", "", "!")
    assert pattern.groups_in("disk") is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("a.$1.$2", "a.x.y"),
        ("${1}z${last}", "xzy"),
        ("$1z", ""),  # as in Go, the name is as long as possible
        ("$$1 $0 $9", "$1 x-y "),
        ("plain", "plain"),
    ],
)
def test_a_template_is_expanded_as_in_go(template: str, expected: str) -> None:
    assert expand(template, ("", "last"), ("x-y", "x", "y")) == expected


def test_every_match_is_replaced() -> None:
    assert Pattern("user=(\\w+)").replace_in("user=ann user=bob", "user=<$1>") == "user=<ann> user=<bob>"
    assert Pattern("x").replace_in("abc", "y") == "abc"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (12, "12"),
        (1.5, "1.5"),
        (3.0, "3"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (1e20, "100000000000000000000"),
        (b"\x01", "AQ=="),
        (["a", 1, b"\x01"], '["a",1,"AQ=="]'),
        ({"k": {"x": None}}, '{"k":{"x":null}}'),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
    ],
)
def test_a_value_is_written_as_the_collector_writes_it(value: object, text: str) -> None:
    assert text_of(value) == text
