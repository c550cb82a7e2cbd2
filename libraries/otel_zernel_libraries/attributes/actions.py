"""The actions on the attributes of one item, compiled from the configuration."""

import hashlib
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from otel_zernel_libraries.attributes.config import AttributeAction
from otel_zernel_libraries.conditions import Pattern, Value, from_any_value, text_of, to_any_value

AttributeValues = dict[str, Value]
Act = Callable[[AttributeValues], None]
"""Changes the attributes in place."""

_INTEGER = re.compile(r"[-+]?[0-9]{1,19}", re.ASCII)
_DOUBLE = re.compile(r"[-+]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?|inf|infinity|nan)", re.IGNORECASE)
_LARGEST = 2**63 - 1


def compiled(actions: Sequence[AttributeAction]) -> Act:
    """All actions as one function."""
    acts = [_compile(action) for action in actions]

    def act(attributes: AttributeValues) -> None:
        for action in acts:
            action(attributes)

    return act


def names_used_by(actions: Sequence[AttributeAction]) -> frozenset[str] | None:
    """The names of the attributes that the actions read or write. None for all of them."""
    if any(action.pattern and action.action != "extract" for action in actions):
        return None
    names = [name for action in actions for name in (action.key, action.from_attribute)]
    extracted = [name for action in actions if action.action == "extract" for name in Pattern(action.pattern).names]
    return frozenset(name for name in names + extracted if name)


def _compile(action: AttributeAction) -> Act:
    match action.action:
        case "insert" | "update" | "upsert":
            return _writing(action)
        case "delete":
            return _for_keys(action, lambda attributes, key: attributes.pop(key, None))
        case "hash":
            return _for_keys(action, _hash)
        case "extract":
            return _extracting(action)
        case "convert":
            return _converting(action)


def _writing(action: AttributeAction) -> Act:
    key, read = action.key, _source(action)
    on_missing, on_present = action.action != "update", action.action != "insert"

    def write(attributes: AttributeValues) -> None:
        if on_present if key in attributes else on_missing:
            is_there, value = read(attributes)
            if is_there:
                attributes[key] = value

    return write


def _source(action: AttributeAction) -> Callable[[AttributeValues], tuple[bool, Value]]:
    """Whether there is a value, and the value."""
    source, default = action.from_attribute, _listed(action.default_value)
    if source is None:
        value = default if action.value is None else _listed(action.value)
        return lambda attributes: (True, value)
    return lambda attributes: (
        (True, attributes[source]) if source in attributes else (action.default_value is not None, default)
    )


def _listed(value: Value) -> Value:
    return list(value) if isinstance(value, tuple) else value


def _for_keys(action: AttributeAction, change: Callable[[AttributeValues, str], object]) -> Act:
    """Changes the attribute of the key, and those whose names match the pattern."""
    key = action.key
    if not action.pattern:
        return lambda attributes: change(attributes, key) if key in attributes else None  # type: ignore[return-value]  # ignored
    matches = Pattern(action.pattern).is_found_in

    def act(attributes: AttributeValues) -> None:
        for name in [name for name in attributes if name == key or matches(name)]:
            change(attributes, name)

    return act


def _hash(attributes: AttributeValues, key: str) -> None:
    """The SHA-256 of the value in hex. Numbers are hashed as 8 bytes, true and false as one: as in the Collector."""
    data = _hashed_bytes(attributes[key])
    attributes[key] = hashlib.sha256(data).hexdigest() if data else ""


def _hashed_bytes(value: Value) -> bytes:
    match value:
        case str():
            return value.encode()
        case bool():
            return bytes((value,))
        case int():
            return struct.pack("<q", value)
        case float():
            return struct.pack("<d", value)
        case _:
            return b""


def _extracting(action: AttributeAction) -> Act:
    key, pattern = action.key, Pattern(action.pattern)

    def extract(attributes: AttributeValues) -> None:
        value = attributes.get(key)
        groups = pattern.groups_in(value) if isinstance(value, str) else None
        if groups:
            attributes.update(zip(pattern.names, groups[1:], strict=True))

    return extract


def _converting(action: AttributeAction) -> Act:
    key = action.key
    convert = {"int": _to_integer, "double": _to_double, "string": text_of}[action.converted_type or "string"]

    def act(attributes: AttributeValues) -> None:
        if key in attributes:
            attributes[key] = convert(attributes[key])

    return act


def _to_integer(value: Value) -> Value:
    """The integer; the value itself if it cannot be converted."""
    match value:
        case bool():
            return int(value)
        case float() if math.isfinite(value) and abs(value) <= _LARGEST:
            return int(value)
        case str() if _INTEGER.fullmatch(value) and -_LARGEST - 1 <= int(value) <= _LARGEST:
            return int(value)
        case _:
            return value


def _to_double(value: Value) -> Value:
    """The double; the value itself if it cannot be converted."""
    if isinstance(value, bool | int):
        return float(value)
    return float(value) if isinstance(value, str) and _DOUBLE.fullmatch(value) else value


class AttributeChanges(NamedTuple):
    """What differs after the actions."""

    removed: frozenset[str]
    replaced: AttributeValues
    added: AttributeValues


def changes_by(act: Act, names: frozenset[str] | None, message: Any) -> AttributeChanges | None:
    """The changes that actions make to the attributes of a message, which is only read. None without a change.

    Only attributes of these names are read: reading the others would take most of the time.
    """
    if names is None:
        before = {pair.key: from_any_value(pair.value) for pair in message.attributes}
    else:
        before = {key: from_any_value(pair.value) for pair in message.attributes if (key := pair.key) in names}
    after = dict(before)
    act(after)
    removed = frozenset(before.keys() - after.keys())
    added = {key: value for key, value in after.items() if key not in before}
    replaced = {key: after[key] for key, value in before.items() if key in after and _differs(value, after[key])}
    return AttributeChanges(removed, replaced, added) if removed or replaced or added else None


def _differs(value: Value, other: Value) -> bool:
    return value is not other and (type(value) is not type(other) or value != other)


def write(message: Any, changes: AttributeChanges) -> None:
    """Changes the attributes of a message. The others keep their order and encoding."""
    if changes.removed or changes.replaced:
        for index in range(len(message.attributes) - 1, -1, -1):
            pair = message.attributes[index]
            if (key := pair.key) in changes.removed:
                del message.attributes[index]
            elif key in changes.replaced:
                pair.value.CopyFrom(to_any_value(changes.replaced[key]))
    for key, value in changes.added.items():
        message.attributes.add(key=key, value=to_any_value(value))
