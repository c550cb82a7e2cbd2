"""Every processor with the settings of its sample survives any valid data, and changes none of another pipeline."""

from typing import Any

import pytest
import yaml
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch
from otel_zernel.component import Processor
from otel_zernel.registry import Registry
from otel_zernel.testing import Dropped, make_context

REGISTRY = Registry.installed()
TYPES = ("attributes", "batch", "filter", "memory_limiter", "metricstransform", "resource_detection", "transform")

KEYS = st.sampled_from(["", "hw.id", "state", "namespace", "http.url", "user.id", "gpu_name", "command", "é"])
TEXTS = st.sampled_from(["", "a", "7", "used", "https://host/x", "token=x", "\x00", "é" * 3000]) | st.text(max_size=5)
PLAIN: st.SearchStrategy[AnyValue] = st.one_of(
    st.just(AnyValue()),
    st.builds(AnyValue, string_value=TEXTS),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, double_value=st.floats()),
    st.builds(AnyValue, bytes_value=st.binary(max_size=4)),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: AnyValue(array_value=ArrayValue(values=values))),
        st.lists(st.tuples(KEYS, inner), max_size=3).map(
            lambda pairs: AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key=k, value=v) for k, v in pairs]))
        ),
    ),
    max_leaves=4,
)
ATTRIBUTES = st.lists(st.builds(KeyValue, key=KEYS, value=VALUES), max_size=4)
NAMES = st.sampled_from(
    [
        "",
        "hw.power",
        "hw.gpu.memory.usage",
        "hw.gpu.utilization",
        "requests.get",
        "requests.post",
        "k8s.pod.x",
        "queue.size",
    ]
)
TIMES = st.sampled_from([0, 1, 2**64 - 1])
FLOATS = st.floats()


def _point(draw: st.DrawFn, metric: Metric, kind: str) -> None:
    point: Any = getattr(metric, kind).data_points.add(attributes=draw(ATTRIBUTES), time_unix_nano=draw(TIMES))
    if kind in ("gauge", "sum"):
        match draw(st.sampled_from(["none", "int", "double"])):
            case "int":
                point.as_int = draw(st.integers(-(2**63), 2**63 - 1))
            case "double":
                point.as_double = draw(FLOATS)
    elif kind == "histogram":
        point.count, point.sum = draw(st.integers(0, 9)), draw(FLOATS)
        point.bucket_counts.extend(draw(st.lists(st.integers(0, 9), max_size=3)))
        point.explicit_bounds.extend(draw(st.lists(FLOATS, max_size=2)))
    elif kind == "exponential_histogram":
        point.scale = draw(st.integers(-2, 2))
        point.positive.offset = draw(st.integers(-5, 5))
        point.positive.bucket_counts.extend(draw(st.lists(st.integers(0, 9), max_size=3)))


@st.composite
def metrics(draw: st.DrawFn) -> MetricsData:
    message = MetricsData()
    for _ in range(draw(st.integers(0, 2))):
        resource = message.resource_metrics.add()
        resource.resource.attributes.extend(draw(ATTRIBUTES))
        for _ in range(draw(st.integers(0, 2))):
            scope = resource.scope_metrics.add()
            for name in draw(st.lists(NAMES, max_size=4)):
                metric = scope.metrics.add(name=name, unit=draw(st.sampled_from(["", "W"])))
                kinds = ["", "gauge", "sum", "histogram", "exponential_histogram", "summary"]
                if kind := draw(st.sampled_from(kinds)):
                    getattr(metric, kind).SetInParent()
                    for _ in range(draw(st.integers(0, 3))):
                        _point(draw, metric, kind)
    return message


@st.composite
def spans(draw: st.DrawFn) -> TracesData:
    message = TracesData()
    scope = message.resource_spans.add().scope_spans.add()
    for name in draw(st.lists(st.sampled_from(["", "step", "health"]), max_size=3)):
        span = scope.spans.add(name=name, attributes=draw(ATTRIBUTES), kind=draw(st.integers(0, 7)))
        for _ in range(draw(st.integers(0, 2))):
            span.events.add(name=draw(TEXTS), attributes=draw(ATTRIBUTES))
    return message


@st.composite
def logs(draw: st.DrawFn) -> LogsData:
    message = LogsData()
    scope = message.resource_logs.add().scope_logs.add()
    for body in draw(st.lists(VALUES, max_size=3)):
        record = scope.log_records.add(body=body, attributes=draw(ATTRIBUTES))
        record.severity_number = draw(st.integers(0, 30))  # type: ignore[assignment]  # the stubs want the enum
    return message


def processor(type_: str) -> Processor:
    cls = REGISTRY.load("processors", type_)
    sample = yaml.safe_load(REGISTRY.sample("processors", type_).replace("$$", "$"))[type_]
    built = cls(cls.Config.model_validate(sample), make_context("processors", type_))
    assert isinstance(built, Processor)
    return built


@pytest.mark.parametrize("type_", TYPES)
@given(metrics(), spans(), logs())
@settings(max_examples=25, deadline=None)
def test_any_valid_data_pass_without_an_error_or_a_change_of_a_copy(
    type_: str, some_metrics: MetricsData, some_spans: TracesData, some_logs: LogsData
) -> None:
    one = processor(type_)
    batch = Batch(some_metrics, some_spans, some_logs)
    before, elsewhere = batch.item_count, batch.copy()
    arrived = [elsewhere.message(signal).SerializeToString() for signal in elsewhere.signals]
    outputs = list(one.process(batch))
    outputs += one.flush()
    assert [elsewhere.message(signal).SerializeToString() for signal in elsewhere.signals] == arrived
    assert isinstance(one.context.drop, Dropped)
    assert not one.context.drop.counts
    messages: list[Message] = []
    for output in outputs:
        again = Batch.from_bytes(
            metrics=output.bytes_of("metrics"), spans=output.bytes_of("traces"), logs=output.bytes_of("logs")
        )
        assert again.item_count == output.item_count
        messages += [again.metrics, again.spans, again.logs]
    after = sum(output.item_count for output in outputs)
    if type_ not in ("filter", "metricstransform"):
        assert after == before
    elif type_ == "filter":
        assert after <= before
