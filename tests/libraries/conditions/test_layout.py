"""The walk through a message stands at every message of a context, with those around it."""

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.conditions import LAYOUTS, Context, Item


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
