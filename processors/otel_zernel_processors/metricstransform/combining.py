"""Combines several metrics into one."""

from collections.abc import Sequence

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel_processors.metricstransform import labels
from otel_zernel_processors.metricstransform.aggregation import aggregate
from otel_zernel_processors.metricstransform.config import Transform
from otel_zernel_processors.metricstransform.selecting import MetricSelector, points_of


def mismatch(metrics: Sequence[Metric]) -> str | None:
    """Why these metrics cannot be combined; None if they can. They need equal types, units and labels."""
    first, *others = metrics
    if first.WhichOneof("data") in (None, "summary"):
        return f"{first.name} is a summary, or has no data"
    for other in others:
        if first.WhichOneof("data") != other.WhichOneof("data"):
            return f"the types of {first.name} and {other.name} differ"
        if first.unit != other.unit:
            return f"the units of {first.name} ({first.unit}) and {other.name} ({other.unit}) differ"
        if _meaning(first) != _meaning(other):
            return f"the temporality or monotonicity of {first.name} and {other.name} differs"
        if _labels(first) != _labels(other):
            return f"the labels of {first.name} and {other.name} differ"
    return None


def _meaning(metric: Metric) -> tuple[object, object]:
    data = getattr(metric, metric.WhichOneof("data") or "gauge")
    return getattr(data, "aggregation_temporality", None), getattr(data, "is_monotonic", None)


def _labels(metric: Metric) -> set[str]:
    return {pair.key for point in points_of(metric) for pair in point.attributes}


def combine(metrics: Sequence[Metric], transform: Transform, selector: MetricSelector) -> Metric:
    """One metric with the data points of all, aggregated. Groups of the expression become labels."""
    combined = Metric()
    combined.CopyFrom(metrics[0])
    combined.name = transform.new_name
    del points_of(combined)[:]
    for metric in metrics:
        added = {label: _cased(value, transform) for label, value in selector.labels_from(metric.name).items()}
        every = points_of(metric)
        for index in selector.chosen(metric):
            point = points_of(combined).add()
            point.CopyFrom(every[index])
            labels.put(point, added)
    if transform.aggregation_type:
        aggregate(combined, range(len(points_of(combined))), transform.aggregation_type)
    return combined


def _cased(value: str, transform: Transform) -> str:
    match transform.submatch_case:
        case "lower":
            return value.lower()
        case "upper":
            return value.upper()
        case _:
            return value
