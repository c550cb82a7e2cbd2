"""The filter drops what its conditions say, and counts it."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import key_values
from otel_zernel.testing import Dropped, make_context
from otel_zernel_processors.filter import FilterProcessor
from tests import otlp
from tests.otlp import data, gauge, metrics_in, number, records_in, spans_in


def processor(reader: InMemoryMetricReader | None = None, **options: Any) -> FilterProcessor:
    meter = MeterProvider([reader]).get_meter("test") if reader else None
    context = make_context("processors", "filter", meter=meter)
    return FilterProcessor(FilterProcessor.Config.model_validate(options), context)


def after(batch: Batch, **options: Any) -> Batch | None:
    """The batch that comes out; None if nothing does."""
    outputs = list(processor(**options).process(batch))
    assert len(outputs) <= 1
    return outputs[0] if outputs else None


def metrics() -> Batch:
    """Two hosts, each with the gauges `power` (values 0 and 1) and `speed` (value 2)."""
    message = MetricsData()
    power = gauge("power", *(number(float(value), {"gpu": str(value)}, 0) for value in (0, 1)))
    for host in ("a", "b"):
        of_host = data(power, gauge("speed", number(2, time=0)), resource={"host.name": host}, scope=f"scope-{host}")
        message.MergeFrom(of_host)
    return Batch.from_bytes(metrics=message.SerializeToString())


def spans() -> Batch:
    """The spans `step` (a client) with two events, and `health` (a server)."""
    step = Span(name="step", kind=Span.SPAN_KIND_CLIENT, attributes=key_values({"rank": 0}))
    step.events.add(name="oom")
    step.events.add(name="log")
    health = Span(name="health", kind=Span.SPAN_KIND_SERVER)
    message = otlp.traces(step, health, resource={"service.name": "trainer"})
    scope = message.resource_spans[0].scope_spans[0].scope
    scope.name, scope.version = "torch", "2.4"
    return Batch.from_bytes(spans=message.SerializeToString())


def logs() -> Batch:
    """Records with the severities 0, 5 (DEBUG), 9 (INFO) and 17 (ERROR), whose bodies name them."""
    records = [
        LogRecord(
            severity_number=severity,  # type: ignore[arg-type]  # the stubs want the enum
            severity_text=name,
            attributes=key_values({"level": name}),
            body=AnyValue(string_value=f"body {name}"),
        )
        for severity, name in ((0, "NONE"), (5, "DEBUG"), (9, "INFO"), (17, "ERROR"))
    ]
    return Batch.from_bytes(logs=otlp.logs(*records).SerializeToString())


def points_of(batch: Batch | None) -> list[tuple[str, str, float]]:
    """Host, metric and value of each point, decoded from the batch's bytes."""
    message = MetricsData.FromString(batch.bytes_of("metrics") if batch else b"")
    return [
        (resource.resource.attributes[0].value.string_value, metric.name, point.as_double or point.as_int)
        for resource in message.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.gauge.data_points
    ]


def spans_of(batch: Batch | None) -> list[tuple[str, int]]:
    """Name and number of events of each span."""
    message = TracesData.FromString(batch.bytes_of("traces") if batch else b"")
    return [(span.name, len(span.events)) for span in spans_in(message)]


def records_of(batch: Batch | None) -> list[str]:
    message = LogsData.FromString(batch.bytes_of("logs") if batch else b"")
    return [record.severity_text for record in records_in(message)]


ALL_POINTS = points_of(metrics())


@pytest.mark.parametrize(
    ("section", "kept"),
    [
        ({"metric": ['name == "power"']}, [("a", "speed", 2), ("b", "speed", 2)]),
        ({"datapoint": ["value_double == 0"]}, [p for p in ALL_POINTS if p[2] != 0]),
        ({"datapoint": ['metric.name == "power"']}, [p for p in ALL_POINTS if p[1] != "power"]),
        ({"datapoint": ['attributes["gpu"] == "1"', "value_int == 2"]}, [p for p in ALL_POINTS if p[2] == 0]),
        ({"resource": ['attributes["host.name"] == "a"']}, [p for p in ALL_POINTS if p[0] == "b"]),
        ({"metric": ['name == "speed"'], "datapoint": ["value_double == 1"]}, [p for p in ALL_POINTS if p[2] == 0]),
        ({"metric": ["true"]}, []),
        ({"include": {"match_type": "strict", "metric_names": ["speed"]}}, [p for p in ALL_POINTS if p[1] == "speed"]),
        (
            {"exclude": {"match_type": "regexp", "metric_names": ["^sp.*d$"]}},
            [p for p in ALL_POINTS if p[1] == "power"],
        ),
        (
            {"include": {"match_type": "strict", "resource_attributes": [{"key": "host.name", "value": "b"}]}},
            [p for p in ALL_POINTS if p[0] == "b"],
        ),
        (
            {"exclude": {"match_type": "regexp", "resource_attributes": [{"key": "host.name", "value": "a|x"}]}},
            [p for p in ALL_POINTS if p[0] == "b"],
        ),
        ({"exclude": {"match_type": "strict", "resource_attributes": [{"key": "host.name"}]}}, []),
    ],
)
def test_metrics_are_dropped_by_conditions_and_by_names(section: dict[str, Any], kept: Sequence[Any]) -> None:
    assert points_of(after(metrics(), metrics=section)) == kept


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"traces": {"span": ['name == "health" and kind == SPAN_KIND_SERVER']}}, [("step", 2)]),
        ({"traces": {"spanevent": ['name == "log"']}}, [("step", 1), ("health", 0)]),
        ({"traces": {"spanevent": ['span.name == "step"']}}, [("step", 0), ("health", 0)]),
        ({"traces": {"resource": ['attributes["service.name"] == "trainer"']}}, []),
        ({"spans": {"include": {"match_type": "strict", "span_names": ["step"]}}}, [("step", 2)]),
        ({"spans": {"exclude": {"match_type": "strict", "span_kinds": ["Client"]}}}, [("health", 0)]),
        ({"spans": {"exclude": {"match_type": "regexp", "services": ["^train"]}}}, []),
        (
            {"spans": {"exclude": {"match_type": "strict", "attributes": [{"key": "rank", "value": 0}]}}},
            [("health", 0)],
        ),
        ({"spans": {"exclude": {"match_type": "strict", "attributes": [{"key": "rank", "value": "0"}]}}}, None),
        (
            {"spans": {"exclude": {"match_type": "regexp", "attributes": [{"key": "rank", "value": "^0$"}]}}},
            [("health", 0)],
        ),
        ({"spans": {"exclude": {"match_type": "strict", "libraries": [{"name": "torch", "version": "1"}]}}}, None),
        ({"spans": {"exclude": {"match_type": "strict", "libraries": [{"name": "torch"}]}}}, []),
        (
            {
                "spans": {
                    "include": {"match_type": "strict", "libraries": [{"name": "torch", "version": "2.4"}]},
                    "exclude": {"match_type": "strict", "span_names": ["health"]},
                }
            },
            [("step", 2)],
        ),
        ({"trace_conditions": ['span.name == "step"']}, [("health", 0)]),
        ({"trace_conditions": ['scope.name == "torch"']}, []),
        (
            {"trace_conditions": [{"context": "spanevent", "conditions": ['name == "oom"']}]},
            [("step", 1), ("health", 0)],
        ),
    ],
)
def test_spans_and_events_are_dropped(options: dict[str, Any], kept: Sequence[Any] | None) -> None:
    assert spans_of(after(spans(), **options)) == (spans_of(spans()) if kept is None else kept)


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"logs": {"log_record": ["severity_number < SEVERITY_NUMBER_INFO"]}}, ["INFO", "ERROR"]),
        ({"logs": {"log_record": ['IsMatch(body, "ERR")']}}, ["NONE", "DEBUG", "INFO"]),
        ({"logs": {"include": {"severity_number": {"min": "info"}}}}, ["INFO", "ERROR"]),
        ({"logs": {"include": {"severity_number": {"min": 9, "match_undefined": True}}}}, ["NONE", "INFO", "ERROR"]),
        ({"logs": {"exclude": {"match_type": "strict", "severity_texts": ["INFO"]}}}, ["NONE", "DEBUG", "ERROR"]),
        ({"logs": {"exclude": {"match_type": "regexp", "bodies": ["^body [IE]"]}}}, ["NONE", "DEBUG"]),
        (
            {"logs": {"include": {"match_type": "strict", "record_attributes": [{"key": "level", "value": "INFO"}]}}},
            ["INFO"],
        ),
        ({"log_conditions": ["log.severity_number == 0", 'log.attributes["level"] == "INFO"']}, ["DEBUG", "ERROR"]),
    ],
)
def test_log_records_are_dropped(options: dict[str, Any], kept: list[str]) -> None:
    assert records_of(after(logs(), **options)) == kept


def test_a_signal_without_conditions_is_not_parsed() -> None:
    batch = Batch.join([Batch.encoded("metrics", b"\xff damaged", 1), logs()])
    passed = after(batch, logs={"log_record": ["severity_number == 5"]})
    assert passed is not None
    assert passed.bytes_of("metrics") == b"\xff damaged"
    assert records_of(passed) == ["NONE", "INFO", "ERROR"]


def test_the_other_signals_pass_if_all_of_one_is_dropped() -> None:
    batch = Batch.join([metrics(), logs()])
    passed = after(batch, metrics={"metric": ["true"]})
    assert passed is not None
    assert passed.signals == ("logs",)


def test_containers_that_lose_their_last_content_vanish() -> None:
    passed = after(metrics(), metrics={"datapoint": ['resource.attributes["host.name"] == "a"']})
    assert passed is not None
    [resource] = MetricsData.FromString(passed.bytes_of("metrics")).resource_metrics
    assert len(resource.scope_metrics[0].metrics) == 2


def test_dropped_items_are_counted_by_signal_and_not_as_lost() -> None:
    reader = InMemoryMetricReader()
    options = {"metrics": {"metric": ['name == "power"']}, "logs": {"log_record": ["severity_number == 5"]}}
    one = processor(reader, **options)
    list(one.process(metrics()))
    list(one.process(logs()))
    data = reader.get_metrics_data()
    assert data is not None
    found = {
        metric.name: point.value  # type: ignore[union-attr]  # counters have number points
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    }
    assert found == {
        "otelcol_processor_filter_datapoints.filtered": 4,
        "otelcol_processor_filter_logs.filtered": 1,
    }
    assert isinstance(one.context.drop, Dropped)
    assert not one.context.drop.counts


def test_a_condition_that_does_not_fit_keeps_the_item_and_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    condition = 'HasPrefix(attributes["gpu"], "0")'  # speed has no such attribute
    one = processor(metrics={"datapoint": [condition]})
    for _ in range(2):
        [passed] = list(one.process(metrics()))
        assert points_of(passed) == [p for p in ALL_POINTS if p[2] != 0]
    assert len(caplog.records) == 1
    assert condition in caplog.text


def test_error_mode_silent_does_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    options = {"metrics": {"datapoint": ['HasPrefix(attributes["gpu"], "0")']}, "error_mode": "silent"}
    assert len(points_of(after(metrics(), **options))) == 4
    assert not caplog.records


def test_error_mode_propagate_drops_and_counts_the_batch(caplog: pytest.LogCaptureFixture) -> None:
    one = processor(metric_conditions=[{"error_mode": "propagate", "conditions": ["Len(datapoint.value_double) == 1"]}])
    assert list(one.process(metrics())) == []
    assert isinstance(one.context.drop, Dropped)
    assert one.context.drop.counts == {"condition_error": 6}
    assert "has no length" in caplog.text


@given(st.lists(st.lists(st.booleans(), max_size=5), max_size=4), st.booleans())
def test_what_stays_is_what_a_plain_loop_keeps_in_order(dropped: list[list[bool]], scattered: bool) -> None:
    message = MetricsData()
    expected = []
    for order, of_metric in enumerate(dropped):
        # Many gaps take another path.
        values = list(enumerate(of_metric * (150 if scattered else 1), order * 10_000))
        message.MergeFrom(data(gauge(str(order), *(number(value, {"drop": drop}) for value, drop in values))))
        expected += [value for value, drop in values if not drop]
    passed = after(Batch(metrics=message), metrics={"datapoint": ['attributes["drop"] == true']})
    left = metrics_in(passed.metrics) if passed else []
    assert [point.as_int for metric in left for point in metric.gauge.data_points] == expected


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"metrics": {"metric": ['nam == "x"']}}, 'did you mean "name"'),
        ({"metrics": {"datapoint": ["IsRootSpan()"]}}, "for conditions on a span"),
        ({"metrics": {"include": {"match_type": "expr", "expressions": ["true"]}}}, "expr is not supported"),
        ({"metrics": {"include": {"match_type": "regexp", "metric_names": ["("]}}}, "not a regular expression"),
        ({"logs": {"include": {"match_type": "regexp", "bodies": ["("]}}}, "not a regular expression"),
        ({"spans": {"include": {"match_type": "strict"}}}, "at least one property"),
        ({"spans": {"include": {"match_type": "strict", "span_kinds": ["Clint"]}}}, 'did you mean "Client"'),
        ({"logs": {"include": {"severity_number": {"min": "LOUD"}}}}, "not a severity"),
        (
            {"logs": {"include": {"severity_number": {"min": 9}}, "log_record": ["true"]}},
            "use only one of these for logs: logs::include and exclude, conditions in logs",
        ),
        ({"traces": {"span": ["true"]}, "trace_conditions": ["true"]}, "use only one of these for traces"),
        ({"trace_conditions": ['name == "x"']}, "write the context before"),
    ],
)
def test_a_wrong_configuration_is_refused_with_a_reason(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        processor(**options)
