"""Actions change attributes as little as possible."""

from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.attributes.actions import changes_by, compiled, names_used_by, write
from otel_zernel_libraries.attributes.config import AttributeAction


def actions(*options: dict[str, Any]) -> list[AttributeAction]:
    return [AttributeAction.model_validate(option) for option in options]


def changed(resource: Resource, *options: dict[str, Any]) -> bool:
    """Applies the actions. Returns whether there was a change."""
    before = resource.SerializeToString()
    every = actions(*options)
    changes = changes_by(compiled(every), names_used_by(every), resource)
    assert resource.SerializeToString() == before
    if changes:
        write(resource, changes)
    return changes is not None


def test_the_names_that_actions_use_are_known_unless_a_pattern_may_match_any() -> None:
    extract = {"key": "url", "pattern": "(?P<host>.*)", "action": "extract"}
    copy = {"key": "a", "from_attribute": "b", "action": "insert"}
    assert names_used_by(actions(extract, copy)) == frozenset({"url", "host", "a", "b"})
    assert names_used_by(actions(copy, {"pattern": "^x", "action": "delete"})) is None


def test_untouched_attributes_keep_their_place_and_their_value() -> None:
    resource = Resource(attributes=key_values({"a": 1, "b": 2, "c": ["x"], "d": 4}))
    resource.attributes.add(key="empty", value=AnyValue())
    assert changed(resource, {"key": "b", "action": "delete"}, {"key": "d", "value": "new", "action": "update"})
    assert [pair.key for pair in resource.attributes] == ["a", "c", "d", "empty"]
    assert resource.attributes[1].value.array_value.values[0].string_value == "x"
    assert resource.attributes[2].value.string_value == "new"
    assert resource.attributes[3].value.WhichOneof("value") is None


def test_writing_the_same_value_is_no_change_but_another_type_is() -> None:
    resource = Resource(attributes=key_values({"a": 1}))
    assert not changed(resource, {"key": "a", "value": 1, "action": "upsert"})
    assert changed(resource, {"key": "a", "value": True, "action": "upsert"})
    assert changed(resource, {"key": "a", "value": 1.0, "action": "upsert"})


def test_all_attributes_of_one_name_are_removed() -> None:
    resource = Resource(attributes=[*key_values({"a": 1}), *key_values({"a": 2, "b": 3})])
    assert changed(resource, {"key": "a", "action": "delete"})
    assert [pair.key for pair in resource.attributes] == ["b"]
