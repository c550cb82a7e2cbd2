"""Conditions have the values that OTTL gives them.

The walk through a message stands at every message of a context, with those around it.
"""

from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.conditions import LAYOUTS, Condition, ConditionFailed, Context, Item, compile_condition
from tests.libraries.conditions.items import histogram_item, item

TRUE: list[tuple[Context, str]] = [
    ("metric", 'name == "hw.power"'),
    ("metric", 'name != "hw.energy" and unit == "W"'),
    ("metric", 'metric.name == "hw.power" and metric.description == "Power."'),
    ("metric", "type == METRIC_DATA_TYPE_SUM and is_monotonic == true"),
    ("metric", "aggregation_temporality == AGGREGATION_TEMPORALITY_CUMULATIVE"),
    ("metric", 'HasAttrKeyOnDatapoint("hw.id") and not HasAttrKeyOnDatapoint("x")'),
    ("metric", 'HasAttrOnDatapoint("hw.id", "gpu-0") and HasAttrOnDatapoint("n", 3)'),
    ("metric", 'IsMatch(name, "^hw\\\\.") and IsMatch(name, "power")'),
    ("metric", 'resource.attributes["host.name"] == "node-1"'),
    ("metric", 'scope.name == "nvml" and instrumentation_scope.version == "1.2"'),
    ("datapoint", 'attributes["hw.id"] == "gpu-0" and metric.name == "hw.power"'),
    ("datapoint", "value_double > 250 and value_double < 251.0 and value_int == nil"),
    ("datapoint", 'attributes["missing"] == nil and attributes["n"] != nil'),
    ("datapoint", 'attributes["n"] >= 3 and attributes["n"] <= 3.0 and attributes["on"] == true'),
    ("datapoint", 'attributes["n"] != "3"'),
    ("datapoint", 'IsMatch(attributes["n"], "^3$") and not IsMatch(attributes["missing"], ".*")'),
    ("datapoint", "time_unix_nano == 7 and start_time_unix_nano == 0 and flags == 0 and count == nil"),
    ("datapoint", 'datapoint.attributes["hw.id"] == "gpu-0"'),
    ("span", 'name == "forward" and kind == SPAN_KIND_CLIENT and kind.string == "Client"'),
    ("span", 'status.code == STATUS_CODE_ERROR and status.message == "out of memory"'),
    ("span", 'attributes["tags"][1] == "b" and attributes["nested"]["x"]["y"] == nil'),
    ("span", 'attributes["nested"]["deep"]["x"] == 1 and attributes["nested"] != nil'),
    ("span", 'attributes["tags"] == ["a", "b"] and attributes["tags"] != ["b", "a"]'),
    ("span", 'trace_id.string == "000102030405060708090a0b0c0d0e0f" and IsRootSpan()'),
    ("span", "trace_id == TraceID(0x000102030405060708090a0b0c0d0e0f) and span_id == SpanID(0x0001020304050607)"),
    ("spanevent", 'name == "oom" and span.name == "forward" and attributes["bytes"] == 0x0102'),
    ("log", 'body == "loss is nan" and IsMatch(body, "nan$") and body.string == "loss is nan"'),
    ("log", "severity_number < SEVERITY_NUMBER_ERROR and severity_number >= SEVERITY_NUMBER_WARN"),
    ("log", 'severity_text == "WARN" and attributes["file"] == "train.py"'),
    ("resource", 'attributes["gpus"] == 8 and resource.attributes["gpus"] > 7.5'),
    ("scope", 'name == "nvml" and resource.attributes["service.name"] == "trainer"'),
    ("log", 'IsString(body) and IsInt(severity_number) and not IsMap(body) and not IsList(attributes["file"])'),
    ("span", 'IsDouble(attributes["loss"]) and IsMap(attributes["nested"]) and IsList(attributes["tags"])'),
    ("datapoint", 'IsBool(attributes["on"]) and not IsInt(attributes["on"])'),
    ("log", 'HasPrefix(body, "loss") and HasSuffix(body, "nan") and Len(body) == 11'),
    ("log", 'Concat([severity_text, attributes["file"]], "-") == "WARN-train.py"'),
    ("log", 'ToLowerCase(severity_text) == "warn" and ToUpperCase(body) == "LOSS IS NAN"'),
    ("log", 'Int("12") == 12 and Int(1.9) == 1 and Double("1.5") == 1.5 and Int("x") == nil and String(12) == "12"'),
    ("log", "true and not false or false"),
    ("log", "true or false and false"),  # "and" binds tighter
    ("log", "not (true and false)"),
    ("log", "1 < 2 and -1 < 1 and .5 < 1 and false < true and nil == nil"),
    ("log", 'body == "loss\\u0020is\\x20nan"'),
]


@pytest.mark.parametrize(("context", "text"), TRUE, ids=[text for _, text in TRUE])
def test_a_condition_that_is_true_holds_and_its_negation_does_not(context: Context, text: str) -> None:
    assert compile_condition(text, context).holds(item()) is True
    assert compile_condition(f"not ({text})", context).holds(item()) is False


@pytest.mark.parametrize(
    "text",
    [
        "nil < nil",
        "nil <= nil",
        "nil != nil",
        'attributes["missing"] < 1',
        'attributes["missing"] >= 1',
        'attributes["hw.id"] < 1',
        'attributes["hw.id"] == 1',
        'attributes["on"] == 1',
        'attributes["on"] < 2',
        "value_int > 0",
        'attributes["hw.id"] == ["gpu-0"]',
    ],
)
def test_values_of_different_types_are_neither_equal_nor_ordered(text: str) -> None:
    assert compile_condition(text, "datapoint").holds(item()) is False


def test_fields_of_histograms_are_read_and_those_of_numbers_are_nil() -> None:
    assert compile_condition("count > 3 and sum == 1.5", "datapoint").holds(histogram_item(4))
    assert compile_condition("value_double == nil and value_int == nil", "datapoint").holds(histogram_item(4))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('HasPrefix(attributes["n"], "3")', "a text is needed, not 3"),
        ('HasPrefix(attributes["missing"], "3")', "a text is needed, not None"),
        ('attributes["hw.id"]["x"] == 1', "'gpu-0' has no part 'x'"),
        ('Len(["a", "b"]) == 2 and attributes["list"][2] == 1', "has no part 2"),
        ("Len(value_double) == 1", "250.5 has no length"),
    ],
)
def test_a_condition_that_does_not_fit_an_item_fails(text: str, reason: str) -> None:
    with pytest.raises(ConditionFailed, match=reason):
        compile_condition(text, "datapoint").holds(item())


@pytest.mark.parametrize(
    ("text", "signal", "context"),
    [
        ('resource.attributes["a"] == "b"', "traces", "resource"),
        ('span.name == "a" or resource.attributes["a"] == 1', "traces", "span"),
        ('spanevent.name == "a" and span.name == "b"', "traces", "spanevent"),
        ('metric.name == "a"', "metrics", "metric"),
        ('metric.name == "a" and datapoint.value_int == 1', "metrics", "datapoint"),
        ('HasAttrKeyOnDatapoint("k")', "metrics", "metric"),
        ("IsRootSpan()", "traces", "span"),
        ('scope.name == "x"', "logs", "scope"),
        ("log.severity_number < 9", "logs", "log"),
        ("true", "metrics", "datapoint"),
    ],
)
def test_the_context_is_that_of_the_innermost_field(text: str, signal: Any, context: Context) -> None:
    condition: Condition = compile_condition(text, signal=signal)
    assert condition.context == context


def metrics() -> MetricsData:
    message = MetricsData()
    for host in "ab":
        resource = message.resource_metrics.add()
        resource.resource.attributes.extend(key_values({"host": host}))
        scope = resource.scope_metrics.add()
        scope.scope.name = f"scope {host}"
        scope.metrics.add(name="empty")
        for value in (1, 2):
            scope.metrics.add(name=f"m{value}").gauge.data_points.add(as_int=value)
    return message


def place(item: Item) -> tuple[str, str, str, int]:
    """Host, scope, metric and value at which the item stands."""
    host = item.resource.attributes[0].value.string_value
    return host, item.scope.name, item.metric.name, item.point.as_int


@pytest.mark.parametrize(("context", "count"), [("resource", 2), ("scope", 2), ("metric", 6), ("datapoint", 4)])
def test_each_context_of_metrics_is_visited(context: Context, count: int) -> None:
    assert sum(1 for _ in LAYOUTS["metrics"].walk(metrics(), context, Item())) == count


def test_the_item_stands_at_each_point() -> None:
    item = Item()
    places = [place(item) for _ in LAYOUTS["metrics"].walk(metrics(), "datapoint", item)]
    assert places == [(host, f"scope {host}", f"m{value}", value) for host in "ab" for value in (1, 2)]


def test_events_and_log_records_are_visited() -> None:
    spans, logs, item = TracesData(), LogsData(), Item()
    span = spans.resource_spans.add().scope_spans.add().spans.add(name="step")
    span.events.add(name="oom")
    logs.resource_logs.add().scope_logs.add().log_records.add(severity_text="INFO")
    assert [(item.span.name, item.event.name) for _ in LAYOUTS["traces"].walk(spans, "spanevent", item)] == [
        ("step", "oom")
    ]
    assert [item.log.severity_text for _ in LAYOUTS["logs"].walk(logs, "log", item)] == ["INFO"]
