"""A mistake in a condition is reported with its character and a way to correct it."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel_libraries.conditions import Context, InvalidCondition, compile_condition, parse_statement

MISTAKES: list[tuple[Context, str, int, str]] = [
    ("metric", 'name === "x"', 8, "the operators are =="),
    ("metric", 'name = "x"', 6, "the operators are =="),
    ("metric", 'name == "x" && true', 13, "and or not"),
    ("metric", "name == 'x'", 9, "double quotes"),
    ("metric", 'name == "x', 9, "does not end"),
    ("metric", "name == x", 9, 'metric has no field "x"'),
    ("metric", 'nam == "x"', 1, 'did you mean "name"'),
    ("metric", 'span.name == "x"', 1, "available: resource, scope, metric"),
    ("metric", "name", 5, "expected one of =="),
    ("metric", "", 1, "expected a value, found the end"),
    ("metric", '(name == "x"', 13, r'expected "\)"'),
    ("metric", 'name == "x")', 12, "expected the end"),
    ("metric", 'name == "x" or', 15, "expected a value"),
    ("metric", 'name == "\\d"', 10, r"write \\\\ for a backslash"),
    ("metric", 'IsMatch(name, "(a")', 1, "not a regular expression of RE2"),
    ("metric", 'IsMatch(name, "(?<=a)b")', 1, "not a regular expression of RE2"),
    ("metric", "IsMatch(name, unit)", 15, "must be a text in double quotes"),
    ("metric", "IsMatch(name)", 1, "needs: target, pattern"),
    ("metric", 'Foo(name) == "x"', 1, "not supported"),
    ("metric", "Len(name)", 1, "compare the result of Len"),
    ("metric", "type == METRIC_DATA_TYPE_SUMM", 9, 'did you mean "METRIC_DATA_TYPE_SUM"'),
    ("metric", "1 + 1 == 2", 3, "calculations"),
    ("metric", "name == 99999999999999999999", 9, "more than 64 bits"),
    ("metric", "name == 0x123", 9, "even number"),
    ("metric", 'name["k"] == 1', 1, "has no parts"),
    ("datapoint", "attributes[0] == 1", 1, "double quotes"),
    ("datapoint", "attributes[k] == 1", 12, "expected a key"),
    ("datapoint", 'HasAttrKeyOnDatapoint("k")', 1, "for conditions on a metric"),
    ("log", "not " * 60 + "true", 201, "levels of nesting"),
    ("log", "true or " * 2000 + "true", 10_001, "10000 characters"),
    ("span", 'cache["x"] == 1', 1, "no field"),
]


@pytest.mark.parametrize(("context", "text", "position", "reason"), MISTAKES, ids=[one[1][:30] for one in MISTAKES])
def test_a_mistake_is_reported_with_its_character(context: Context, text: str, position: int, reason: str) -> None:
    with pytest.raises(InvalidCondition, match=reason) as error:
        compile_condition(text, context)
    assert str(error.value).startswith(f"character {position} of ")


def test_without_a_context_each_field_needs_its_own() -> None:
    with pytest.raises(InvalidCondition, match='write the context before "name": resource, scope, span, spanevent'):
        compile_condition('name == "x"', signal="traces")
    with pytest.raises(InvalidCondition, match='"log" is not available here'):
        compile_condition('log.body == "x"', signal="traces")


def test_a_statement_begins_with_a_function() -> None:
    with pytest.raises(InvalidCondition, match="begin with a function"):
        parse_statement('name == "x"')


WORDS = [
    "name",
    "(",
    ")",
    "and",
    "or",
    "not",
    "==",
    "<",
    '"x"',
    "1",
    "nil",
    "[",
    "]",
    ",",
    ".",
    "IsMatch",
    "true",
    "where",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=40))
def test_any_text_compiles_or_is_an_invalid_condition(text: str) -> None:
    contexts: list[Any] = ["metric", "log"]
    for context in contexts:
        with suppress(InvalidCondition):  # any other error fails
            compile_condition(text, context)
