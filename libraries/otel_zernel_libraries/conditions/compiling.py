"""Turns the tree of a condition into a function.

The functions that conditions may call are a part of OTTL's converters.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, get_args

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel.batch import Signal, points
from otel_zernel.text import one_line, quoted, suggestion
from otel_zernel_libraries.conditions import syntax
from otel_zernel_libraries.conditions.errors import ConditionFailed, InvalidCondition
from otel_zernel_libraries.conditions.fields import (
    ALIASES,
    CONTEXTS_OF,
    FIELDS,
    WITH_ATTRIBUTES,
    Context,
    Reader,
    attribute_reader,
    attributes_reader,
    inferred_context,
    message_of,
    visible_from,
)
from otel_zernel_libraries.conditions.item import Item
from otel_zernel_libraries.conditions.patterns import Pattern
from otel_zernel_libraries.conditions.values import Value, compare, from_any_value, text_of

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
    is_in_text = Pattern(pattern).is_found_in

    def evaluate(item: Item) -> bool:
        value = target(item)
        return value is not None and is_in_text(value if type(value) is str else text_of(value))

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


Test = Callable[[Item], bool]


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition. `holds` raises `ConditionFailed` if an item does not have the types that it needs."""

    text: str
    context: Context
    holds: Test


def compile_condition(text: str, context: Context | None = None, signal: Signal | None = None) -> Condition:
    """Compiles a condition about the items of a context. Raises `InvalidCondition`.

    Without a context, `signal` is needed: the context is that of the innermost field, and every field must be written
    with its context, such as `span.name`.
    """
    values = Values(text, context, signal)
    holds = values.test(syntax.parse_condition(text))
    return Condition(text, values.context, holds)


class Values:
    """Compiles the values of one text in one context."""

    def __init__(self, text: str, context: Context | None, signal: Signal | None = None) -> None:
        self._text = text
        self._given = context
        self._signal = signal
        self._used: set[Context] = set()

    @property
    def context(self) -> Context:
        """The given context, else that of the innermost field compiled so far."""
        return self._given or inferred_context(self._used, self._signal or "metrics")

    def test(self, node: syntax.ConditionNode) -> Test:
        """The function of a condition. Raises `InvalidCondition`."""
        match node:
            case syntax.AnyOf():
                return _any(*(self.test(part) for part in node.parts))
            case syntax.AllOf():
                return _all(*(self.test(part) for part in node.parts))
            case syntax.Negation():
                inner = self.test(node.inner)
                return lambda item: not inner(item)
            case syntax.Comparison():
                return _comparison(self.value(node.left), node.operation, node.right, self.value(node.right))
            case syntax.FunctionCall():
                return self._boolean(node)
            case syntax.Constant():
                return lambda item: node.value is True

    def value(self, node: syntax.ValueNode) -> Reader:
        """The function of a value. Raises `InvalidCondition`."""
        match node:
            case syntax.Constant():
                constant = node.value
                return lambda item: constant
            case syntax.FieldPath():
                return self._field(node)
            case syntax.ValueList():
                readers = [self.value(value_node) for value_node in node.values]
                return lambda item: [read(item) for read in readers]
            case syntax.FunctionCall():
                return self._call(node, self._converter(node))

    def resolve(self, path: syntax.FieldPath) -> tuple[Context, str]:
        """The context and the name of a field within it: `span` and `status.code`. Raises `InvalidCondition`."""
        first = ALIASES.get(path.names[0], path.names[0])
        contexts = visible_from(self._given) if self._given else CONTEXTS_OF[self._signal or "metrics"]
        for context in contexts:
            if context == first and len(path.names) > 1:
                self._used.add(context)
                return context, ".".join(path.names[1:])
        if first in get_args(Context) and len(path.names) > 1:
            raise self.mistake(f"{quoted(first)} is not available here; available: {', '.join(contexts)}", path)
        if not self._given:
            raise self.mistake(f"write the context before {quoted(str(path))}: {', '.join(contexts)}", path)
        return self._given, str(path)

    def imply(self, context: Context) -> None:
        """Notes that a function is about this context, as if one of its fields was read."""
        self._used.add(context)

    def mistake(self, problem: str, node: syntax.ValueNode) -> InvalidCondition:
        """The error for a mistake at a node."""
        return InvalidCondition(problem, self._text, node.position)

    def _field(self, path: syntax.FieldPath) -> Reader:
        context, name = self.resolve(path)
        if name == "attributes" and context in WITH_ATTRIBUTES:
            first, *others = path.keys or (None,)
            if first is not None and not isinstance(first, str):
                raise self.mistake("the key of an attribute must be in double quotes", path)
            return _indexed(attributes_reader(context) if first is None else attribute_reader(context, first), others)
        fields = FIELDS[context]
        if name == "body.string" and context == "log":
            name = "body"
        if name not in fields:
            known = [*fields, "attributes"] if context in WITH_ATTRIBUTES else list(fields)
            raise self.mistake(f"{context} has no field {quoted(name)}{suggestion(name, known, 'fields')}", path)
        if path.keys and name != "body":
            raise self.mistake(f"{quoted(name)} has no parts", path)
        message, read = message_of(context), fields[name]
        return _indexed(lambda item: read(message(item)), list(path.keys))

    def _boolean(self, call: syntax.FunctionCall) -> Test:
        converter = self._converter(call)
        if not converter.boolean:
            raise self.mistake(f"compare the result of {call.name}, for example with ==", call)
        return self._call(call, converter)

    def _converter(self, call: syntax.FunctionCall) -> Converter:
        if call.name not in CONVERTERS:
            hint = suggestion(call.name, CONVERTERS, "functions")
            raise self.mistake(f"the function {quoted(call.name)} is not supported{hint}", call)
        converter = CONVERTERS[call.name]
        if len(call.arguments) != len(converter.arguments):
            needed = ", ".join(converter.arguments) or "none"
            raise self.mistake(f"{call.name} has {len(call.arguments)} arguments; it needs: {needed}", call)
        return converter

    def _call(self, call: syntax.FunctionCall, converter: Converter) -> Reader:
        if converter.context:
            if self._given and self._given != converter.context:
                raise self.mistake(f"{call.name} is for conditions on a {converter.context}", call)
            self.imply(converter.context)
        named = zip(converter.arguments, call.arguments, strict=True)
        arguments = [self._argument(call, name, node) for name, node in named]
        try:
            return converter.build(*arguments)
        except ValueError as error:
            raise self.mistake(str(error), call) from None

    def _argument(self, call: syntax.FunctionCall, name: str, node: syntax.ValueNode) -> Reader | str:
        if name not in CONSTANT_ARGUMENTS:
            return self.value(node)
        if not isinstance(node, syntax.Constant) or not isinstance(node.value, str):
            raise self.mistake(f"the {name} of {call.name} must be a text in double quotes", node)
        return node.value


def _any(*tests: Test) -> Test:
    match tests:
        case (one, other):
            return lambda item: one(item) or other(item)
        case _:
            return lambda item: any(test(item) for test in tests)


def _all(*tests: Test) -> Test:
    match tests:
        case (one, other):
            return lambda item: one(item) and other(item)
        case _:
            return lambda item: all(test(item) for test in tests)


def _comparison(left: Reader, operation: str, node: syntax.ValueNode, right: Reader) -> Test:
    if isinstance(node, syntax.Constant) and isinstance(node.value, str) and operation in ("==", "!="):
        text, equals = node.value, operator.eq if operation == "==" else operator.ne
        return lambda item: bool(equals(left(item), text))  # no other type equals a text
    return lambda item: compare(operation, left(item), right(item))


def _indexed(read: Reader, keys: list[str | int]) -> Reader:
    if not keys:
        return read

    def evaluate(item: Item) -> Value:
        value = read(item)
        for key in keys:
            value = _part(value, key)
        return value

    return evaluate


def _part(value: Value, key: str | int) -> Value:
    if isinstance(value, dict) and isinstance(key, str):
        return value.get(key)
    if isinstance(value, list) and isinstance(key, int) and 0 <= key < len(value):
        return value[key]
    if value is None:
        return None
    raise ConditionFailed(f"{one_line(repr(value))} has no part {key!r}")
