"""Adds up data points with equal labels and times."""

import statistics
from collections.abc import Callable, Generator, Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from otel_zernel.batch import Batch
from otel_zernel.component import PAUSE
from otel_zernel_processors.metricstransform.config import Aggregation
from otel_zernel_processors.metricstransform.numbers import to_integer
from otel_zernel_processors.metricstransform.selecting import delete, points_of

_POINTS_UNTIL_PAUSE = 100
_REDUCE: dict[Aggregation, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "mean": lambda values: sum(values) / len(values),
    "min": min,
    "max": max,
    "count": len,
    "median": statistics.median,
}


def aggregate(metric: Metric, indexes: Sequence[int], kind: Aggregation) -> Generator[Batch, None, None]:
    """Merges those of the data points at `indexes` that have equal labels and times. Summaries stay as they are.

    Numbers are merged as `kind` says, histograms by adding their buckets.
    """
    if metric.HasField("summary"):
        return
    groups: dict[tuple[Any, ...], list[int]] = {}
    every, is_delta = points_of(metric), _is_delta(metric)
    for number, index in enumerate(indexes):
        groups.setdefault(_key(every[index], is_delta), []).append(index)
        if number % _POINTS_UNTIL_PAUSE == 0:
            yield PAUSE
    gone: list[int] = []
    for number, (first, *others) in enumerate(groups.values()):
        _merge(every[first], [every[index] for index in others], kind)
        gone += others
        if number % _POINTS_UNTIL_PAUSE == 0:
            yield PAUSE
    delete(metric, sorted(gone))


def _is_delta(metric: Metric) -> bool:
    data = getattr(metric, metric.WhichOneof("data") or "gauge")
    delta = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    return bool(getattr(data, "aggregation_temporality", None) == delta)


def _key(point: Any, is_delta: bool) -> tuple[Any, ...]:
    """Points with equal keys are merged. Delta points must also begin at the same time."""
    labels = frozenset(pair.SerializeToString(deterministic=True) for pair in point.attributes)
    common = (labels, point.time_unix_nano, point.start_time_unix_nano if is_delta else 0, point.flags)
    if hasattr(point, "explicit_bounds"):
        return (*common, tuple(point.explicit_bounds), len(point.bucket_counts))
    return (*common, point.scale, point.zero_threshold) if hasattr(point, "scale") else common


def _merge(point: Any, others: Sequence[Any], kind: Aggregation) -> None:
    if hasattr(point, "as_double"):
        _merge_numbers(point, others, kind)
    elif hasattr(point, "explicit_bounds"):
        for other in others:
            _merge_counts(point, other)
            point.bucket_counts[:] = _added(point.bucket_counts, 0, other.bucket_counts, 0)[1]
    else:
        for other in others:
            _merge_counts(point, other)
            point.zero_count += other.zero_count
            for name in ("positive", "negative"):
                _merge_buckets(getattr(point, name), getattr(other, name))
    for other in others:
        point.exemplars.extend(other.exemplars)
        point.start_time_unix_nano = min(point.start_time_unix_nano, other.start_time_unix_nano)


def _merge_numbers(point: Any, others: Sequence[Any], kind: Aggregation) -> None:
    kinds = {one.WhichOneof("value") for one in (point, *others)}
    if not others or kinds == {None}:  # points without a recorded value
        return
    values = [one.as_int if one.WhichOneof("value") == "as_int" else one.as_double for one in (point, *others)]
    result = _REDUCE[kind](values)
    if "as_double" in kinds:
        point.as_double = result
    else:
        point.as_int = to_integer(result)


def _merge_counts(point: Any, other: Any) -> None:
    """Adds count and sum, and joins the extremes. A field that one of them lacks is not known of both."""
    point.count += other.count
    for name, join in (("sum", sum), ("min", min), ("max", max)):
        if point.HasField(name) and other.HasField(name):
            setattr(point, name, join((getattr(point, name), getattr(other, name))))
        else:
            point.ClearField(name)


def _merge_buckets(buckets: Any, other: Any) -> None:
    """Adds the counts of exponential buckets of one scale, whose offsets may differ."""
    if other.bucket_counts:
        offset, counts = _added(buckets.bucket_counts, buckets.offset, other.bucket_counts, other.offset)
        buckets.offset = offset
        buckets.bucket_counts[:] = counts


def _added(one: Sequence[int], offset: int, other: Sequence[int], other_offset: int) -> tuple[int, list[int]]:
    """The sums of two rows of counts that begin at different offsets, and the offset of the sums."""
    if not one:
        return other_offset, list(other)
    start = min(offset, other_offset)
    counts = [0] * (max(offset + len(one), other_offset + len(other)) - start)
    for row, begin in ((one, offset), (other, other_offset)):
        for position, count in enumerate(row, begin - start):
            counts[position] += count
    return start, counts
