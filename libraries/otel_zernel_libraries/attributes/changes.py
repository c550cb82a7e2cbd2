"""The difference that actions make to the attributes of an item, and how it is written back."""

from typing import Any, NamedTuple

from otel_zernel_libraries.attributes.actions import Act, AttributeValues
from otel_zernel_libraries.conditions import Value, from_any_value, to_any_value


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


def _differs(one: Value, other: Value) -> bool:
    return one is not other and (type(one) is not type(other) or one != other)


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
