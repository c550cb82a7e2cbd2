"""A metricstransform processor, and its input and output as plain values."""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel.batch import Batch, points
from otel_zernel.testing import make_context
from otel_zernel_processors.metricstransform import MetricsTransformProcessor
from tests import otlp
from tests.otlp import data, metrics_in, number

Labels = dict[str, str]


def gauge(name: str, *values: tuple[float, Labels], unit: str = "") -> Metric:
    """A gauge. Integers stay integers."""
    return otlp.gauge(name, *(number(value, labels, time=1) for value, labels in values), unit=unit)


def processor(*transforms: Mapping[str, Any]) -> MetricsTransformProcessor:
    config = MetricsTransformProcessor.Config.model_validate({"transforms": list(transforms)})
    return MetricsTransformProcessor(config, make_context("processors", "metricstransform"))


def batch_with(*metrics: Metric) -> Batch:
    return Batch.from_bytes(metrics=data(*metrics, resource={"host.name": "a"}).SerializeToString())


def run(one: MetricsTransformProcessor, batch: Batch) -> MetricsData:
    """The metrics that come out, decoded from the batch's bytes."""
    [passed] = one.process(batch)
    return MetricsData.FromString(passed.bytes_of("metrics"))


def after(transforms: Sequence[Mapping[str, Any]], *metrics: Metric) -> dict[str, list[tuple[float, Labels]]]:
    """Value and labels of each number point, by the name of its metric."""
    message = run(processor(*transforms), batch_with(*metrics))
    return {metric.name: [_plain(point) for point in points(metric)] for metric in metrics_in(message)}


def _plain(point: Any) -> tuple[float, Labels]:
    value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
    return value, {pair.key: pair.value.string_value for pair in point.attributes}


def update(*operations: Mapping[str, Any], **options: Any) -> list[dict[str, Any]]:
    return [{"include": "m", "action": "update", "operations": list(operations), **options}]
