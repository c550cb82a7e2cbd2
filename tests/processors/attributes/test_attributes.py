"""The actions on attributes, and the items that they change."""

import hashlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.testing import make_context
from otel_zernel_libraries.conditions import from_any_value
from otel_zernel_processors.attributes import AttributesProcessor
from tests.otlp import data, gauge, logs, metrics_in, number, records_in, spans_in, traces


def processor(*actions: dict[str, Any], **options: Any) -> AttributesProcessor:
    config = AttributesProcessor.Config.model_validate({"actions": list(actions), **options})
    return AttributesProcessor(config, make_context("processors", "attributes"))


def run(one: AttributesProcessor, batch: Batch) -> Batch:
    [passed] = one.process(batch)
    return passed


def points(*attributes: dict[str, Any], name: str = "m", host: str = "a") -> Batch:
    """A gauge with a point for each set of attributes."""
    metric = gauge(name, *(number(1.0, attribute) for attribute in attributes))
    return Batch.from_bytes(metrics=data(metric, resource={"host.name": host}).SerializeToString())


def attributes_of(batch: Batch) -> list[dict[str, Any]]:
    """The attributes of every gauge point, span and log record, decoded from the batch's bytes."""
    items: list[Any] = []
    for metric in metrics_in(MetricsData.FromString(batch.bytes_of("metrics"))):
        items += metric.gauge.data_points
    items += spans_in(TracesData.FromString(batch.bytes_of("traces")))
    items += records_in(LogsData.FromString(batch.bytes_of("logs")))
    return [{pair.key: from_any_value(pair.value) for pair in item.attributes} for item in items]


def after(action: dict[str, Any], attributes: dict[str, Any]) -> dict[str, Any]:
    [found] = attributes_of(run(processor(action), points(attributes)))
    return found


WRITES = [
    ({"action": "insert", "value": 1}, {"k": 1}, {"k": 0}),
    ({"action": "update", "value": 1}, {}, {"k": 1}),
    ({"action": "upsert", "value": 1}, {"k": 1}, {"k": 1}),
    ({"action": "UPSERT", "value": ["a", "b"]}, {"k": ["a", "b"]}, {"k": ["a", "b"]}),
    ({"action": "upsert", "from_attribute": "other"}, {"k": "x"}, {"k": "x"}),
    ({"action": "upsert", "from_attribute": "gone"}, {}, {"k": 0}),
    ({"action": "upsert", "from_attribute": "gone", "default_value": "d"}, {"k": "d"}, {"k": "d"}),
    ({"action": "insert", "default_value": "d"}, {"k": "d"}, {"k": 0}),
    ({"action": "delete"}, {}, {}),
]


@pytest.mark.parametrize(("action", "missing", "present"), WRITES)
def test_each_action_on_a_missing_and_a_present_attribute(
    action: dict[str, Any], missing: dict[str, Any], present: dict[str, Any]
) -> None:
    assert after({"key": "k", **action}, {"other": "x"}) == {"other": "x", **missing}
    assert after({"key": "k", **action}, {"k": 0, "other": "x"}) == {"other": "x", **present}


def test_a_pattern_deletes_the_attributes_whose_names_it_matches() -> None:
    attributes = {"user.id": 1, "user.name": "x", "key": 2, "a.user": 3}
    assert after({"pattern": "^user\\.", "action": "delete"}, attributes) == {"key": 2, "a.user": 3}
    assert after({"key": "key", "pattern": "^user\\.", "action": "delete"}, attributes) == {"a.user": 3}


@pytest.mark.parametrize(
    ("value", "hashed"),
    [
        ("secret", b"secret"),
        (True, b"\x01"),
        (5, struct.pack("<q", 5)),
        (1.5, struct.pack("<d", 1.5)),
    ],
)
def test_a_value_is_replaced_by_its_sha_256(value: object, hashed: bytes) -> None:
    found = after({"key": "k", "action": "hash"}, {"k": value, "other": "x"})
    assert found == {"k": hashlib.sha256(hashed).hexdigest(), "other": "x"}


def test_hash_takes_a_pattern_and_ignores_missing_attributes() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    assert after({"pattern": "^u", "action": "hash"}, {"u1": "x", "v": "x"}) == {"u1": digest, "v": "x"}
    assert after({"key": "gone", "action": "hash"}, {"v": ""}) == {"v": ""}
    assert after({"key": "v", "action": "hash"}, {"v": ""}) == {"v": ""}


def test_extract_adds_an_attribute_for_each_named_group() -> None:
    action = {"key": "url", "pattern": "^(?P<scheme>\\w+)://(?P<host>[^/:]+)(:(?P<port>\\d+))?", "action": "extract"}
    with pytest.raises(ValidationError, match="every group of the pattern needs a name"):
        processor(action)
    action["pattern"] = "^(?P<scheme>\\w+)://(?P<host>[^/:]+)(?P<port>:\\d+)?"
    found = after(action, {"url": "http://node/x", "host": "old"})
    assert found == {"url": "http://node/x", "scheme": "http", "host": "node", "port": ""}
    assert after(action, {"url": "nothing"}) == {"url": "nothing"}
    assert after(action, {"url": 5}) == {"url": 5}


CONVERSIONS = [
    ("int", "42", 42),
    ("int", "-7", -7),
    ("int", "4.5", "4.5"),
    ("int", "1_0", "1_0"),
    ("int", "9223372036854775808", "9223372036854775808"),
    ("int", 4.9, 4),
    ("int", True, 1),
    ("double", "1.5", 1.5),
    ("double", "1e3", 1000.0),
    ("double", " 1", " 1"),
    ("double", "x", "x"),
    ("double", 2, 2.0),
    ("double", False, 0.0),
    ("string", 1.5, "1.5"),
    ("string", 3, "3"),
    ("string", True, "true"),
    ("string", ["a", "b"], '["a","b"]'),
]


@pytest.mark.parametrize(("target", "value", "expected"), CONVERSIONS)
def test_a_value_is_converted_or_stays(target: str, value: object, expected: object) -> None:
    found = after({"key": "k", "action": "convert", "converted_type": target}, {"k": value})["k"]
    assert (type(found), found) == (type(expected), expected)


def test_actions_apply_in_order_to_the_result_of_the_previous_action() -> None:
    one = processor(
        {"key": "b", "from_attribute": "a", "action": "insert"},
        {"key": "a", "action": "delete"},
        {"key": "c", "from_attribute": "a", "action": "insert"},
        {"key": "b", "converted_type": "string", "action": "convert"},
    )
    assert attributes_of(run(one, points({"a": 1}))) == [{"b": "1"}]


def test_spans_and_log_records_are_changed_too() -> None:
    batch = Batch(spans=traces(Span(name="step")), logs=logs(LogRecord()))
    found = run(processor({"key": "k", "value": 1, "action": "insert"}), batch)
    assert attributes_of(found) == [{"k": 1}, {"k": 1}]
    assert found.signals == ("traces", "logs")


def selection(**properties: Any) -> dict[str, Any]:
    return {"match_type": "strict", **properties}


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"include": selection(metric_names=["m"])}, True),
        ({"include": selection(metric_names=["n"])}, False),
        ({"exclude": selection(metric_names=["m"])}, False),
        ({"include": selection(resources=[{"key": "host.name", "value": "a"}])}, True),
        ({"include": selection(resources=[{"key": "host.name", "value": "b"}])}, False),
        ({"include": selection(attributes=[{"key": "n", "value": 1}])}, True),
        ({"include": selection(attributes=[{"key": "n"}], metric_names=["x"])}, False),
        ({"include": selection(span_names=["m"])}, False),  # points have no span
        ({"include": {"match_type": "regexp", "metric_names": ["^.$"]}, "exclude": selection(services=["s"])}, True),
    ],
)
def test_include_and_exclude_select_points(options: dict[str, Any], changed: bool) -> None:
    one = processor({"key": "k", "value": 1, "action": "insert"}, **options)
    assert attributes_of(run(one, points({"n": 1}))) == [{"n": 1, "k": 1} if changed else {"n": 1}]


def test_include_selects_spans_by_kind_and_name() -> None:
    spans = traces(*(Span(name="a", kind=kind) for kind in (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER)))
    include = selection(span_names=["a"], span_kinds=["Server"])
    one = processor({"key": "k", "value": 1, "action": "insert"}, include=include)
    assert attributes_of(run(one, Batch(spans=spans))) == [{}, {"k": 1}]


KEYS = st.sampled_from("abcd")
VALUES = st.integers(0, 3) | st.booleans() | st.sampled_from(["", "x"])
ACTIONS = st.lists(
    st.builds(
        lambda key, name, value: {"key": key, "action": name} | ({} if name == "delete" else {"value": value}),
        KEYS,
        st.sampled_from(["insert", "update", "upsert", "delete"]),
        VALUES,
    ),
    min_size=1,
    max_size=5,
)


def naive(actions: list[dict[str, Any]], attributes: dict[str, Any]) -> dict[str, Any]:
    for action in actions:
        key, name = action["key"], action["action"]
        if name == "delete":
            attributes = {other: value for other, value in attributes.items() if other != key}
        elif name == "upsert" or (name == "insert") == (key not in attributes):
            attributes = {**attributes, key: action["value"]}
    return attributes


@given(ACTIONS, st.lists(st.dictionaries(KEYS, VALUES), max_size=4))
def test_random_actions_equal_a_naive_evaluation(
    actions: list[dict[str, Any]], attributes: list[dict[str, Any]]
) -> None:
    found = attributes_of(run(processor(*actions), points(*attributes)))
    expected = [naive(actions, given) for given in attributes]
    assert [list(map(repr, sorted(item.items()))) for item in found] == [
        list(map(repr, sorted(item.items()))) for item in expected
    ]


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ({"action": "insert", "value": 1}, "needs a key"),
        ({"action": "delete"}, "needs a key or a pattern"),
        ({"key": "k", "action": "insert"}, "needs value, from_attribute or default_value"),
        ({"key": "k", "action": "insert", "value": 1, "from_attribute": "x"}, "not both"),
        ({"key": "k", "action": "insert", "from_context": "metadata.tenant"}, "batches carry no metadata of clients"),
        ({"key": "k", "action": "delete", "value": 1}, "has no value"),
        ({"key": "k", "action": "insert", "value": 1, "pattern": "x"}, "has no pattern"),
        ({"key": "k", "action": "convert"}, "needs converted_type"),
        ({"key": "k", "action": "hash", "converted_type": "int"}, "has no converted_type"),
        ({"key": "k", "action": "extract", "pattern": "("}, "not a regular expression of RE2"),
        ({"key": "k", "action": "extract", "pattern": "x"}, "every group of the pattern needs a name"),
        ({"key": "k", "action": "remove"}, "'delete'"),
    ],
)
def test_a_wrong_action_is_refused_with_a_reason(action: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        processor(action)
