"""The functions that change items: a part of OTTL's editors."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.text import quoted, suggestion
from otel_zernel_libraries.conditions import (
    Constant,
    Context,
    FieldPath,
    FunctionCall,
    Item,
    Pattern,
    Value,
    ValueList,
    ValueNode,
    Values,
    message_of,
)
from otel_zernel_libraries.repeated_fields import delete_at, keep_only
from otel_zernel_processors.transform.targets import WRITERS, Write, write_attribute


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to an item. `changes` only reads; `apply` needs editable messages, and does nothing if it is false."""

    changes: Callable[[Item], bool]
    apply: Callable[[Item], None]
    context: Context | None = None
    """The only context in which it may be used; None for all."""


def _arguments(values: Values, call: FunctionCall, *names: str) -> tuple[ValueNode, ...]:
    """The arguments. Raises `InvalidCondition` if there are more or less."""
    if len(call.arguments) != len(names):
        needed = ", ".join(names) or "none"
        raise values.mistake(f"{call.name} has {len(call.arguments)} arguments; it needs: {needed}", call)
    return call.arguments


def _text(values: Values, call: FunctionCall, node: ValueNode) -> str:
    if not isinstance(node, Constant) or not isinstance(node.value, str):
        raise values.mistake(f"{call.name} needs a text in double quotes here", node)
    return node.value


def _path(values: Values, call: FunctionCall, node: ValueNode) -> FieldPath:
    if not isinstance(node, FieldPath):
        raise values.mistake(f"{call.name} needs a field here, such as attributes", node)
    return node


@dataclass(frozen=True, slots=True)
class WritableField:
    """A field: its message, its reader and its writer."""

    message: Callable[[Item], Any]
    read: Callable[[Item], Value]
    write: Write


def _field(values: Values, call: FunctionCall, node: ValueNode) -> WritableField:
    """The field that a path names. Raises `InvalidCondition` if it cannot be changed."""
    path = _path(values, call, node)
    context, name = values.resolve(path)
    read, message = values.value(path), message_of(context)
    if name == "attributes":
        if len(path.keys) != 1 or not isinstance(path.keys[0], str):
            raise values.mistake(f'{call.name} needs one key: attributes["key"]', path)
        return WritableField(message, read, write_attribute(path.keys[0]))
    writers = WRITERS[context]
    if name not in writers or path.keys:
        hint = suggestion(name, [*writers, "attributes"], "fields")
        raise values.mistake(f"{quoted(str(path))} cannot be changed{hint}", path)
    return WritableField(message, read, writers[name])


def _attributes(values: Values, call: FunctionCall, node: ValueNode) -> Callable[[Item], Any]:
    """The function from an item to the message whose attributes are meant."""
    path = _path(values, call, node)
    values.value(path)  # checks the name
    context, name = values.resolve(path)
    if name != "attributes" or path.keys:
        raise values.mistake(f"{call.name} needs attributes without a key", path)
    return message_of(context)


def _set(values: Values, call: FunctionCall) -> Edit:
    """`set(field, value)`. A value of nil changes nothing."""
    target, node = _arguments(values, call, "field", "value")
    field, new = _field(values, call, target), values.value(node)

    def changes(item: Item) -> bool:
        value, old = new(item), field.read(item)
        return value is not None and (type(value) is not type(old) or value != old)

    def apply(item: Item) -> None:
        value = new(item)
        if value is not None:
            field.write(field.message(item), value)

    return Edit(changes, apply)


def _deleting(message: Callable[[Item], Any], is_deleted: Callable[[str], bool]) -> Edit:
    def apply(item: Item) -> None:
        keep_only(message(item).attributes, lambda pair: not is_deleted(pair.key))

    return Edit(lambda item: any(is_deleted(pair.key) for pair in message(item).attributes), apply)


def _delete_key(values: Values, call: FunctionCall) -> Edit:
    target, key = _arguments(values, call, "attributes", "key")
    return _deleting(_attributes(values, call, target), _text(values, call, key).__eq__)


def _delete_matching_keys(values: Values, call: FunctionCall) -> Edit:
    target, pattern = _arguments(values, call, "attributes", "pattern")
    return _deleting(_attributes(values, call, target), Pattern(_text(values, call, pattern)).is_found_in)


def _keep_keys(values: Values, call: FunctionCall) -> Edit:
    target, keys = _arguments(values, call, "attributes", "keys")
    if not isinstance(keys, ValueList):
        raise values.mistake('keep_keys needs a list of keys: ["a", "b"]', keys)
    kept = frozenset(_text(values, call, key) for key in keys.values)
    return _deleting(_attributes(values, call, target), lambda key: key not in kept)


def _keep_matching_keys(values: Values, call: FunctionCall) -> Edit:
    target, pattern = _arguments(values, call, "attributes", "pattern")
    is_in_key = Pattern(_text(values, call, pattern)).is_found_in
    return _deleting(_attributes(values, call, target), lambda key: not is_in_key(key))


def _replace_pattern(values: Values, call: FunctionCall) -> Edit:
    """`replace_pattern(field, "expression", "replacement")`, with `$1` for groups. Other types than text stay."""
    target, pattern, replacement = _arguments(values, call, "field", "pattern", "replacement")
    field, new = _field(values, call, target), _text(values, call, replacement)
    expression = Pattern(_text(values, call, pattern))

    def changes(item: Item) -> bool:
        value = field.read(item)
        return isinstance(value, str) and expression.replace_in(value, new) != value

    def apply(item: Item) -> None:
        value = field.read(item)
        if isinstance(value, str):
            field.write(field.message(item), expression.replace_in(value, new))

    return Edit(changes, apply)


def _replace_all_patterns(values: Values, call: FunctionCall) -> Edit:
    """`replace_all_patterns(attributes, "value", "expression", "replacement")`, or with "key" for the names."""
    target, mode, pattern, replacement = _arguments(values, call, "attributes", "mode", "pattern", "replacement")
    message, new = _attributes(values, call, target), _text(values, call, replacement)
    expression, part = Pattern(_text(values, call, pattern)), _text(values, call, mode)
    if part not in ("key", "value"):
        raise values.mistake('the mode must be "key" or "value"', mode)

    def replaced(pair: Any) -> str:
        return expression.replace_in(pair.key if part == "key" else pair.value.string_value, new)

    def changed_ones(item: Item) -> list[Any]:
        if part == "key":
            return [pair for pair in message(item).attributes if replaced(pair) != pair.key]
        texts = (pair for pair in message(item).attributes if pair.value.HasField("string_value"))
        return [pair for pair in texts if replaced(pair) != pair.value.string_value]

    def apply(item: Item) -> None:
        for pair in changed_ones(item):
            if part == "key":
                pair.key = replaced(pair)
            else:
                pair.value.string_value = replaced(pair)

    return Edit(lambda item: bool(changed_ones(item)), apply)


def _limit(values: Values, call: FunctionCall) -> Edit:
    """`limit(attributes, 10, ["a"])`: keeps so many attributes, these first, then the others in their order."""
    target, node, keys = _arguments(values, call, "attributes", "limit", "priority_keys")
    message, most = _attributes(values, call, target), _natural(values, call, node)
    if not isinstance(keys, ValueList):
        raise values.mistake('limit needs a list of keys: ["a", "b"], or []', keys)
    first = frozenset(_text(values, call, key) for key in keys.values)

    def apply(item: Item) -> None:
        attributes = message(item).attributes
        order = sorted(range(len(attributes)), key=lambda index: attributes[index].key not in first)
        delete_at(attributes, sorted(order[most:]))

    return Edit(lambda item: len(message(item).attributes) > most, apply)


def _natural(values: Values, call: FunctionCall, node: ValueNode) -> int:
    number = node.value if isinstance(node, Constant) else None
    if type(number) is not int or number < 0:
        raise values.mistake(f"{call.name} needs a number here, 0 or more", node)
    return number


def _truncate_all(values: Values, call: FunctionCall) -> Edit:
    """`truncate_all(attributes, 100)`: cuts texts to so many bytes, without breaking a character."""
    target, node = _arguments(values, call, "attributes", "limit")
    message, limit = _attributes(values, call, target), _natural(values, call, node)

    def long_ones(item: Item) -> Iterable[Any]:
        return (pair for pair in message(item).attributes if len(pair.value.string_value.encode()) > limit)

    def apply(item: Item) -> None:
        for pair in long_ones(item):
            pair.value.string_value = pair.value.string_value.encode()[:limit].decode("utf-8", "ignore")

    return Edit(lambda item: any(True for _ in long_ones(item)), apply)


def _sum_to_gauge(values: Values, call: FunctionCall) -> Edit:
    _arguments(values, call)

    def apply(item: Item) -> None:
        if not item.metric.HasField("sum"):
            return
        kept = list(item.metric.sum.data_points)
        item.metric.gauge.SetInParent()  # clears the sum
        item.metric.gauge.data_points.extend(kept)

    return Edit(lambda item: item.metric.HasField("sum"), apply, "metric")


def _gauge_to_sum(values: Values, call: FunctionCall) -> Edit:
    """`convert_gauge_to_sum("cumulative", true)`: the temporality, and whether the sum is monotonic."""
    kind, monotonic = _arguments(values, call, "temporality", "is_monotonic")
    temporality = f"AGGREGATION_TEMPORALITY_{_text(values, call, kind).upper()}"
    if temporality not in ("AGGREGATION_TEMPORALITY_DELTA", "AGGREGATION_TEMPORALITY_CUMULATIVE"):
        raise values.mistake('the temporality must be "cumulative" or "delta"', kind)
    if not isinstance(monotonic, Constant) or not isinstance(monotonic.value, bool):
        raise values.mistake("is_monotonic must be true or false", monotonic)
    is_monotonic = monotonic.value

    def apply(item: Item) -> None:
        if not item.metric.HasField("gauge"):
            return
        kept = list(item.metric.gauge.data_points)
        item.metric.sum.is_monotonic = is_monotonic  # clears the gauge
        item.metric.sum.aggregation_temporality = AggregationTemporality.Value(temporality)
        item.metric.sum.data_points.extend(kept)

    return Edit(lambda item: item.metric.HasField("gauge"), apply, "metric")


EDITORS: Mapping[str, Callable[[Values, FunctionCall], Edit]] = {
    "convert_gauge_to_sum": _gauge_to_sum,
    "convert_sum_to_gauge": _sum_to_gauge,
    "delete_key": _delete_key,
    "delete_matching_keys": _delete_matching_keys,
    "keep_keys": _keep_keys,
    "keep_matching_keys": _keep_matching_keys,
    "limit": _limit,
    "replace_all_patterns": _replace_all_patterns,
    "replace_pattern": _replace_pattern,
    "set": _set,
    "truncate_all": _truncate_all,
}
"""The functions with which a statement may begin."""
