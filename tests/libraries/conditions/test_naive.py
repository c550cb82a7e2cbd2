"""Random conditions have the value that a naive evaluation in Python gives."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from otel_zernel_libraries.conditions import Item, compile_condition
from tests.libraries.conditions.items import attributes

Point = dict[str, Any]
"""The attributes a, b and c, some of them missing, and `value`."""

VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -2.5, "", "x", "1"])
POINTS: st.SearchStrategy[Point] = st.fixed_dictionaries(
    {"a": VALUES, "b": VALUES, "c": VALUES, "value": st.integers(-3, 3)}
)
Naive = Callable[[Point], bool]


def _written(value: Any) -> str:
    if value is None:
        return "nil"
    return f'"{value}"' if isinstance(value, str) else str(value).lower()


def _comparable(left: Any, right: Any) -> bool:
    kinds = [bool if isinstance(one, bool) else float if isinstance(one, int) else type(one) for one in (left, right)]
    return kinds[0] is kinds[1]


def _compared(left: Any, operation: str, right: Any) -> bool:
    if left is None and right is None:
        return operation == "=="
    if not _comparable(left, right):
        return operation == "!="
    results = {"==": left == right, "!=": left != right}
    return results[operation] if operation in results else bool(eval(f"left {operation} right"))


@st.composite
def comparisons(draw: st.DrawFn) -> tuple[str, Naive]:
    key, operation = draw(st.sampled_from("abc")), draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    if draw(st.booleans()):
        other = draw(st.sampled_from("abc"))
        return f'attributes["{key}"] {operation} attributes["{other}"]', lambda p: _compared(
            p[key], operation, p[other]
        )
    value = draw(VALUES)
    if draw(st.booleans()):
        return f"value_int {operation} {_written(value)}", lambda p: _compared(p["value"], operation, value)
    return f'attributes["{key}"] {operation} {_written(value)}', lambda p: _compared(p[key], operation, value)


def _joined(word: str, parts: list[tuple[str, Naive]]) -> tuple[str, Naive]:
    text = f" {word} ".join(f"({one})" for one, _ in parts)
    fold = all if word == "and" else any
    return text, lambda p: fold(naive(p) for _, naive in parts)


CONDITIONS: st.SearchStrategy[tuple[str, Naive]] = st.recursive(
    comparisons(),
    lambda inner: st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", lambda p: not one[1](p))),
        st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=4)).map(lambda t: _joined(*t)),
    ),
    max_leaves=8,
)


@given(CONDITIONS, st.lists(POINTS, min_size=1, max_size=4))
def test_random_conditions_equal_a_naive_evaluation(condition: tuple[str, Naive], points: list[Point]) -> None:
    text, naive = condition
    compiled = compile_condition(text, "datapoint")
    for point in points:
        present = {key: point[key] for key in "abc" if point[key] is not None}
        item = Item(metric=Metric(), point=NumberDataPoint(as_int=point["value"], attributes=attributes(**present)))
        assert compiled.holds(item) is naive(point), text
