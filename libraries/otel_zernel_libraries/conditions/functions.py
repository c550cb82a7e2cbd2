"""The functions that conditions may call: a part of OTTL's converters."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel.batch import points
from otel_zernel.text import one_line
from otel_zernel_libraries.conditions.errors import ConditionFailed
from otel_zernel_libraries.conditions.fields import Context
from otel_zernel_libraries.conditions.item import Item
from otel_zernel_libraries.conditions.patterns import Pattern
from otel_zernel_libraries.conditions.values import Value, from_any_value, text_of

Evaluate = Callable[[Item], Value]


@dataclass(frozen=True, slots=True)
class Converter:
    """A function of the language. `build` makes its evaluation from those of the arguments."""

    build: Callable[..., Evaluate]
    arguments: tuple[str, ...]
    """The name of each argument. One named `pattern`, `key` or `separator` must be a constant text, and `build` gets
    it as such."""
    boolean: bool = False
    """Whether the result is true or false, so that the call is a condition by itself."""
    context: Context | None = None
    """The only context in which it may be called; None for all."""


_points: Callable[..., Any] = points

CONSTANT_ARGUMENTS = frozenset({"pattern", "key", "separator"})


def _is_match(target: Evaluate, pattern: str) -> Evaluate:
    found = Pattern(pattern).is_found_in

    def evaluate(item: Item) -> bool:
        value = target(item)
        return value is not None and found(value if type(value) is str else text_of(value))

    return evaluate


def _text(evaluate: Evaluate, item: Item) -> str:
    value = evaluate(item)
    if not isinstance(value, str):
        raise ConditionFailed(f"a text is needed, not {one_line(repr(value))}")
    return value


def _affix(test: Callable[[str, str], bool]) -> Callable[[Evaluate, Evaluate], Evaluate]:
    return lambda target, affix: lambda item: test(_text(target, item), _text(affix, item))


def _is_type(*types: type) -> Callable[[Evaluate], Evaluate]:
    return lambda target: lambda item: type(target(item)) in types


def _integer(target: Evaluate) -> Evaluate:
    def evaluate(item: Item) -> int | None:
        number = _finite(target(item))
        return None if number is None else int(number)

    return evaluate


def _double(target: Evaluate) -> Evaluate:
    def evaluate(item: Item) -> float | None:
        number = _finite(target(item))
        return None if number is None else float(number)

    return evaluate


def _finite(value: Value) -> int | float | None:
    """The number in a value: of a text, true or false, or a number. None if there is none."""
    try:
        number = value if isinstance(value, int | float) else float(value) if isinstance(value, str) else math.nan
        if isinstance(value, str) and value.lstrip("+-").isdecimal():
            number = int(value) if len(value) < 25 else math.nan
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _length(target: Evaluate) -> Evaluate:
    def evaluate(item: Item) -> int:
        value = target(item)
        if not isinstance(value, str | bytes | list | dict):
            raise ConditionFailed(f"{one_line(repr(value))} has no length")
        return len(value)

    return evaluate


def _joined(parts: Evaluate, separator: str) -> Evaluate:
    def evaluate(item: Item) -> str:
        values = parts(item)
        if not isinstance(values, list):
            raise ConditionFailed("Concat needs a list")
        return separator.join("<nil>" if value is None else text_of(value) for value in values)

    return evaluate


def _has_key(key: str) -> Evaluate:
    return lambda item: any(pair.key == key for pair in _pairs(item))


def _pairs(item: Item) -> Iterator[KeyValue]:
    """The attributes of all points of a metric."""
    return chain.from_iterable(point.attributes for point in _points(item.metric))


def _has_attribute(key: str, value: Evaluate) -> Evaluate:
    def evaluate(item: Item) -> bool:
        wanted = value(item)
        return any(pair.key == key and from_any_value(pair.value) == wanted for pair in _pairs(item))

    return evaluate


CONVERTERS: Mapping[str, Converter] = {
    "Concat": Converter(_joined, ("values", "separator")),
    "Double": Converter(_double, ("value",)),
    "HasAttrKeyOnDatapoint": Converter(_has_key, ("key",), boolean=True, context="metric"),
    "HasAttrOnDatapoint": Converter(_has_attribute, ("key", "value"), boolean=True, context="metric"),
    "HasPrefix": Converter(_affix(str.startswith), ("value", "prefix"), boolean=True),
    "HasSuffix": Converter(_affix(str.endswith), ("value", "suffix"), boolean=True),
    "Int": Converter(_integer, ("value",)),
    "IsBool": Converter(_is_type(bool), ("value",), boolean=True),
    "IsDouble": Converter(_is_type(float), ("value",), boolean=True),
    "IsInt": Converter(_is_type(int), ("value",), boolean=True),
    "IsList": Converter(_is_type(list), ("value",), boolean=True),
    "IsMap": Converter(_is_type(dict), ("value",), boolean=True),
    "IsMatch": Converter(_is_match, ("target", "pattern"), boolean=True),
    "IsRootSpan": Converter(lambda: lambda item: not item.span.parent_span_id, (), boolean=True, context="span"),
    "IsString": Converter(_is_type(str), ("value",), boolean=True),
    "Len": Converter(_length, ("value",)),
    "SpanID": Converter(lambda value: value, ("id",)),
    "String": Converter(lambda value: lambda item: _string(value(item)), ("value",)),
    "ToLowerCase": Converter(lambda value: lambda item: _text(value, item).lower(), ("value",)),
    "ToUpperCase": Converter(lambda value: lambda item: _text(value, item).upper(), ("value",)),
    "TraceID": Converter(lambda value: value, ("id",)),
}


def _string(value: Value) -> str | None:
    return None if value is None else text_of(value)
