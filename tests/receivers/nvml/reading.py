"""The points of a batch, as text that can be compared."""

from collections.abc import Iterator, Sequence

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

from otel_zernel.batch import Batch, points
from otel_zernel_receivers.nvml.gpus.identity import OF_POINTS
from tests.otlp import metrics_in, rows_in


def lines(batch: Batch) -> Iterator[str]:
    """A heading for each resource, and a line for each of its points, which starts with the metric."""
    blocks: dict[str, list[str]] = {}
    for resource in batch.metrics.resource_metrics:
        block = blocks.setdefault(_attributes(resource.resource.attributes), [])
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                block += [
                    f"  {metric.name} [{metric.unit}] {_kind(metric)} {_point(point)}" for point in points(metric)
                ]
    for heading, block in blocks.items():
        yield f"resource {heading}"
        yield from block


def values(batch: Batch, name: str) -> dict[str, float]:
    """The values of a metric's number points, by their own attributes."""
    rows = (row for row in rows_in(batch.metrics) if row.metric.name == name)
    return {_own(row.point): row.value for row in rows if row.value is not None}


def ended(batch: Batch, name: str) -> set[str]:
    """The series of a metric that end in the batch, by their own attributes."""
    return {_own(row.point) for row in rows_in(batch.metrics) if row.metric.name == name and row.value is None}


def metrics(batch: Batch, name: str) -> list[Metric]:
    """All metrics with this name."""
    return [metric for metric in metrics_in(batch.metrics) if metric.name == name]


def _attributes(attributes: Sequence[KeyValue]) -> str:
    return " ".join(f"{attribute.key}={_value(attribute)}" for attribute in attributes)


def _own(point: NumberDataPoint) -> str:
    """The attributes that not every point of the device has."""
    return _attributes([attribute for attribute in point.attributes if attribute.key not in OF_POINTS])


def _value(one: KeyValue) -> str:
    return str(getattr(one.value, one.value.WhichOneof("value") or "string_value"))


def _kind(metric: Metric) -> str:
    kind = metric.WhichOneof("data") or "nothing"
    return "up_down" if kind == "sum" and not metric.sum.is_monotonic else kind


def _point(point: NumberDataPoint) -> str:
    attributes = _own(point)
    if isinstance(point, NumberDataPoint):
        text = f"{point.as_double:.15g}"
    else:
        text = f"count={point.count} sum={point.sum:.15g} min={point.min:.15g} max={point.max:.15g}"
    return f"{{{attributes}}} {text}" + (f" since {point.start_time_unix_nano}" if point.start_time_unix_nano else "")
