"""Turns the tree of a condition into a function."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

from otel_zernel.batch import Signal
from otel_zernel.text import one_line, quoted, suggestion
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
from otel_zernel_libraries.conditions.functions import CONSTANT_ARGUMENTS, CONVERTERS, Converter
from otel_zernel_libraries.conditions.item import Item
from otel_zernel_libraries.conditions.syntax import (
    AllOf,
    AnyOf,
    Comparison,
    ConditionNode,
    Constant,
    FieldPath,
    FunctionCall,
    Negation,
    ValueList,
    ValueNode,
    parse_condition,
)
from otel_zernel_libraries.conditions.values import Value, compare

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
    holds = values.test(parse_condition(text))
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

    def test(self, node: ConditionNode) -> Test:
        """The function of a condition. Raises `InvalidCondition`."""
        match node:
            case AnyOf():
                return _any(*(self.test(part) for part in node.parts))
            case AllOf():
                return _all(*(self.test(part) for part in node.parts))
            case Negation():
                inner = self.test(node.inner)
                return lambda item: not inner(item)
            case Comparison():
                return _comparison(self.value(node.left), node.operation, node.right, self.value(node.right))
            case FunctionCall():
                return self._boolean(node)
            case Constant():
                return lambda item: node.value is True

    def value(self, node: ValueNode) -> Reader:
        """The function of a value. Raises `InvalidCondition`."""
        match node:
            case Constant():
                constant = node.value
                return lambda item: constant
            case FieldPath():
                return self._field(node)
            case ValueList():
                readers = [self.value(one) for one in node.values]
                return lambda item: [read(item) for read in readers]
            case FunctionCall():
                return self._call(node, self._converter(node))

    def resolve(self, path: FieldPath) -> tuple[Context, str]:
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

    def mistake(self, problem: str, node: ValueNode) -> InvalidCondition:
        """The error for a mistake at a node."""
        return InvalidCondition(problem, self._text, node.position)

    def _field(self, path: FieldPath) -> Reader:
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

    def _boolean(self, call: FunctionCall) -> Test:
        converter = self._converter(call)
        if not converter.boolean:
            raise self.mistake(f"compare the result of {call.name}, for example with ==", call)
        return self._call(call, converter)

    def _converter(self, call: FunctionCall) -> Converter:
        if call.name not in CONVERTERS:
            hint = suggestion(call.name, CONVERTERS, "functions")
            raise self.mistake(f"the function {quoted(call.name)} is not supported{hint}", call)
        converter = CONVERTERS[call.name]
        if len(call.arguments) != len(converter.arguments):
            needed = ", ".join(converter.arguments) or "none"
            raise self.mistake(f"{call.name} has {len(call.arguments)} arguments; it needs: {needed}", call)
        return converter

    def _call(self, call: FunctionCall, converter: Converter) -> Reader:
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

    def _argument(self, call: FunctionCall, name: str, node: ValueNode) -> Reader | str:
        if name not in CONSTANT_ARGUMENTS:
            return self.value(node)
        if not isinstance(node, Constant) or not isinstance(node.value, str):
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


def _comparison(left: Reader, operation: str, node: ValueNode, right: Reader) -> Test:
    if isinstance(node, Constant) and isinstance(node.value, str) and operation in ("==", "!="):
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
