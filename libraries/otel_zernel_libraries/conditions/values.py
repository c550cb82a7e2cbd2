"""The values of conditions: Python's own types, and how they are compared and written."""

import json
import operator
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

Value = Any
"""None (no value), bool, int, float, str, bytes, or a list or a dict of values."""

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
OPERATORS = frozenset(_COMPARE)


def from_any_value(value: AnyValue) -> Value:
    """The value of an attribute or a log body; None if it is empty."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [from_any_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: from_any_value(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, kind)


def to_any_value(value: Value) -> AnyValue:
    """The value as OTLP's `AnyValue`. Integers beyond 64 bits become the nearest of OTLP."""
    match value:
        case None:
            return AnyValue()
        case bool():
            return AnyValue(bool_value=value)
        case str():
            return AnyValue(string_value=value)
        case int():
            return AnyValue(int_value=max(-(2**63), min(value, 2**63 - 1)))
        case float():
            return AnyValue(double_value=value)
        case bytes():
            return AnyValue(bytes_value=value)
        case dict():
            pairs = [KeyValue(key=key, value=to_any_value(item)) for key, item in value.items()]
            return AnyValue(kvlist_value=KeyValueList(values=pairs))
        case _:
            return AnyValue(array_value=ArrayValue(values=[to_any_value(item) for item in value]))


def compare(operation: str, left: Value, right: Value) -> bool:
    """Compares as OTTL does: values of different types are not equal, and neither is less than the other."""
    if left is None or right is None:
        return (left is right) is (operation == "==") if operation in ("==", "!=") else False
    kind = _kind(left)
    if kind != _kind(right):
        return operation == "!="
    if kind in ("list", "dict") and operation not in ("==", "!="):
        return False
    return _COMPARE[operation](left, right)


def _kind(value: Value) -> str:
    """The name of the type; integers and doubles are of one kind."""
    kind = type(value).__name__
    return "number" if kind in ("int", "float") else kind


def text_of(value: Value) -> str:
    """The value as the OpenTelemetry Collector writes it: `true`, `1.5`, JSON for lists and maps, base64 for bytes."""
    match value:
        case None:
            return ""
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case float():
            return _number(value)
        case int():
            return str(value)
        case _:
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=text_of, sort_keys=True)


def _number(value: float) -> str:
    """As Go writes a float64: without an exponent from 1e-6 up to 1e21."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[str(value)]
    if value == int(value) and abs(value) < 1e21:
        return str(int(value))
    text = repr(value)
    return f"{value:.22f}".rstrip("0") if "e-" in text and abs(value) >= 1e-6 else text.replace("e-0", "e-")
