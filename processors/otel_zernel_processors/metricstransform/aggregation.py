"""Adds up data points with equal labels and times."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount
from otel_zernel_libraries.histograms.temporality.track import amount_of
from otel_zernel_processors.metricstransform.config import Aggregation
from otel_zernel_processors.metricstransform.numbers import to_integer
from otel_zernel_processors.metricstransform.selecting import delete, points_of

_REDUCE: dict[Aggregation, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "median": statistics.median,
}


def aggregate(metric: Metric, indexes: Sequence[int], kind: Aggregation) -> None:
    """Merges those of the data points at `indexes` that have equal labels and times. Summaries stay as they are.

    Numbers are merged as `kind` says, histograms by adding their buckets.
    """
    if metric.HasField("summary"):
        return
    groups: dict[tuple[Any, ...], list[int]] = {}
    every, is_delta = points_of(metric), _is_delta(metric)
    for index in indexes:
        groups.setdefault(_key(every[index], is_delta), []).append(index)
    gone: list[int] = []
    for first, *others in groups.values():
        if others and _merge(every[first], [every[index] for index in others], kind):
            gone += others
    delete(metric, sorted(gone))


def _is_delta(metric: Metric) -> bool:
    data = getattr(metric, metric.WhichOneof("data") or "gauge")
    delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    return bool(getattr(data, "aggregation_temporality", None) == delta)


def _key(point: Any, is_delta: bool) -> tuple[Any, ...]:
    """Points with equal keys are merged. Delta points must also begin at the same time."""
    labels = frozenset(pair.SerializeToString(deterministic=True) for pair in point.attributes)
    return labels, point.time_unix_nano, point.start_time_unix_nano if is_delta else 0, point.flags


def _merge(point: Any, others: Sequence[Any], kind: Aggregation) -> bool:
    """Merges the others into the point. Returns whether that was possible."""
    if hasattr(point, "as_double"):
        _merge_numbers(point, others, kind)
    elif not _merge_histograms(point, others):
        return False
    for other in others:
        point.exemplars.extend(other.exemplars)
        point.start_time_unix_nano = min(point.start_time_unix_nano, other.start_time_unix_nano)
    return True


def _merge_histograms(point: Any, others: Iterable[Any]) -> bool:
    """Adds up the buckets, whatever their bounds. Returns False if the fields of a point contradict each other."""
    try:
        total: Amount | None = amount_of(point)
        for other in others:
            total = None if total is None else total.plus(amount_of(other))
    except MalformedAmount:
        return False
    if total is not None:
        total.write(point)
    return total is not None


def _merge_numbers(point: Any, others: Sequence[Any], kind: Aggregation) -> None:
    kinds = {one.WhichOneof("value") for one in (point, *others)}
    if kinds == {None}:  # points without a recorded value
        return
    values = [one.as_int if one.WhichOneof("value") == "as_int" else one.as_double for one in (point, *others)]
    result = _REDUCE[kind](values)
    if "as_double" in kinds:
        point.as_double = result
    else:
        point.as_int = to_integer(result)
