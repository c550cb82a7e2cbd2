"""The metrics transform processor: operations on the points of one metric, and several metrics combined into one."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    MetricsData,
    ResourceMetrics,
    ScopeMetrics,
)

from otel_zernel import __version__
from otel_zernel.batch import Batch, points
from otel_zernel.component import ITEMS_AT_ONCE, Context, Processor
from otel_zernel_libraries.conditions import Pattern, expand, to_any_value
from otel_zernel_libraries.histograms.amounts import Amount, MalformedAmount
from otel_zernel_libraries.histograms.temporality.track import amount_of
from otel_zernel_libraries.repeated_fields import delete_at, keep_only
from otel_zernel_processors.metricstransform import labels
from otel_zernel_processors.metricstransform.config import (
    Aggregation,
    MetricOperation,
    MetricsTransformConfig,
    Transform,
)

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)


def toggle_type(point: Any) -> None:
    """Makes a double of an integer, and an integer of a double by cutting its fraction. Other points stay."""
    match _kind(point):
        case "as_int":
            point.as_double = float(point.as_int)
        case "as_double":
            point.as_int = to_integer(point.as_double)


def scale(point: Any, factor: float) -> None:
    """Multiplies a number, or the sum, the extremes and the bounds of a histogram with explicit bounds."""
    match _kind(point):
        case "as_int":
            point.as_int = to_integer(point.as_int * factor)
        case "as_double":
            point.as_double *= factor
        case "histogram" if factor > 0:
            for name in ("sum", "min", "max"):
                if point.HasField(name):
                    setattr(point, name, getattr(point, name) * factor)
            bounds = [bound * factor for bound in point.explicit_bounds]
            del point.explicit_bounds[:]
            point.explicit_bounds.extend(bounds)


def _kind(point: Any) -> str | None:
    """`as_int`, `as_double`, `histogram`, or None for other points."""
    if hasattr(point, "as_double"):
        kind: str | None = point.WhichOneof("value")
        return kind
    return "histogram" if hasattr(point, "explicit_bounds") else None


def to_integer(value: float) -> int:
    """The integer without the fraction, within 64 bits; 0 for NaN."""
    if math.isnan(value):
        return 0
    return int(max(_SMALLEST, min(value, _LARGEST))) if math.isfinite(value) else _LARGEST if value > 0 else _SMALLEST


points_of: Callable[[Metric], Any] = points
"""The data points of a metric: a repeated field of one of five types."""


class MetricSelector:
    """Selects metrics by name, and data points by labels."""

    def __init__(self, transform: Transform) -> None:
        self._pattern = Pattern(transform.include) if transform.match_type == "regexp" else None
        self._name = transform.include
        self._new_name = transform.new_name
        self._labels = {
            label: Pattern(wanted).is_found_in if self._pattern else wanted.__eq__
            for label, wanted in transform.experimental_match_labels.items()
        }

    def names(self, name: str) -> bool:
        """Whether the transform is about metrics with this name."""
        return self._pattern.is_found_in(name) if self._pattern else name == self._name

    def chosen(self, metric: Metric) -> list[int]:
        """The indexes of the data points that the transform is about."""
        every = points_of(metric)
        if not self._labels:
            return list(range(len(every)))
        return [index for index, point in enumerate(every) if self._has_labels(point)]

    def _has_labels(self, point: Any) -> bool:
        """A missing label has the empty value, so that an expression can select points without it."""
        own_labels = {pair.key: pair.value.string_value for pair in point.attributes if pair.key in self._labels}
        return all(matches(own_labels.get(label, "")) for label, matches in self._labels.items())

    def selects(self, metric: Metric) -> bool:
        """Whether the transform is about at least one data point, or the metric has none."""
        return self.names(metric.name) and (not self._labels or not points_of(metric) or bool(self.chosen(metric)))

    def new_name(self, name: str) -> str:
        """The new name of a metric: its own without a `new_name`."""
        groups = self._pattern.groups_in(name) if self._pattern else None
        if self._pattern is None or groups is None:
            return self._new_name or name
        return expand(self._new_name, self._pattern.names, groups) or self._new_name or name

    def labels_from(self, name: str) -> dict[str, str]:
        """The groups of the match as labels. A group without a name is named `$1`."""
        groups = self._pattern.groups_in(name) if self._pattern else None
        if self._pattern is None or groups is None:
            return {}
        names = [name or f"${number}" for number, name in enumerate(self._pattern.names, 1)]
        return dict(zip(names, groups[1:], strict=True))


def keep(metric: Metric, indexes: list[int]) -> None:
    """Removes all data points but those at these indexes."""
    delete_at(points_of(metric), sorted(set(range(len(points_of(metric)))).difference(indexes)))


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
    delete_at(every, sorted(gone))


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
    for second in others:
        point.exemplars.extend(second.exemplars)
        point.start_time_unix_nano = min(point.start_time_unix_nano, second.start_time_unix_nano)
    return True


def _merge_histograms(point: Any, others: Iterable[Any]) -> bool:
    """Adds up the buckets, whatever their bounds. Returns False if the fields of a point contradict each other."""
    try:
        total: Amount | None = amount_of(point)
        for second in others:
            total = None if total is None else total.plus(amount_of(second))
    except MalformedAmount:
        return False
    if total is not None:
        total.write(point)
    return total is not None


def _merge_numbers(point: Any, others: Sequence[Any], kind: Aggregation) -> None:
    kinds = {point_.WhichOneof("value") for point_ in (point, *others)}
    if kinds == {None}:  # points without a recorded value
        return
    values = [
        point_.as_int if point_.WhichOneof("value") == "as_int" else point_.as_double for point_ in (point, *others)
    ]
    result = _REDUCE[kind](values)
    if "as_double" in kinds:
        point.as_double = result
    else:
        point.as_int = to_integer(result)


def mismatch(metrics: Sequence[Metric]) -> str | None:
    """Why these metrics cannot be combined; None if they can. They need equal types, units and labels."""
    first, *others = metrics
    if first.WhichOneof("data") in (None, "summary"):
        return f"{first.name} is a summary, or has no data"
    for second in others:
        if first.WhichOneof("data") != second.WhichOneof("data"):
            return f"the types of {first.name} and {second.name} differ"
        if first.unit != second.unit:
            return f"the units of {first.name} ({first.unit}) and {second.name} ({second.unit}) differ"
        if _meaning(first) != _meaning(second):
            return f"the temporality or monotonicity of {first.name} and {second.name} differs"
        if _labels(first) != _labels(second):
            return f"the labels of {first.name} and {second.name} differ"
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


Choose = Callable[[Metric], list[int]]
"""The indexes of the data points to change."""


def operate(metric: Metric, operations: Sequence[MetricOperation], choose: Choose) -> None:
    """Applies the operations, in order, to the chosen data points."""
    for operation in operations:
        chosen = choose(metric)
        if operation.action == "delete_label_value":
            every = points_of(metric)
            delete_at(every, [index for index in chosen if _has_value(every[index], operation)])
            continue
        every, change = points_of(metric), _change(operation)
        for index in chosen:
            change(every[index])
        if operation.aggregation_type and operation.action.startswith("aggregate"):
            aggregate(metric, chosen, operation.aggregation_type)


def every_point(metric: Metric) -> list[int]:
    """Chooses all data points."""
    return list(range(len(points_of(metric))))


def _change(operation: MetricOperation) -> Callable[[Any], None]:
    """What the operation does to each data point, before it aggregates."""
    new_value = operation.new_value.replace("{{version}}", __version__)
    match operation.action:
        case "add_label":
            return lambda point: labels.put(point, {operation.new_label: new_value})
        case "update_label":
            values = {
                value_action.value: value_action.new_value.replace("{{version}}", __version__)
                for value_action in operation.value_actions
            }
            return lambda point: labels.rename(point, operation.label, operation.new_label, values)
        case "toggle_scalar_data_type":
            return toggle_type
        case "experimental_scale_value":
            return lambda point: scale(point, operation.experimental_scale)
        case "aggregate_labels":
            kept = frozenset(operation.label_set)
            return lambda point: keep_only(point.attributes, lambda pair: pair.key in kept)
        case _:
            values = dict.fromkeys(operation.aggregated_values, new_value)
            return lambda point: labels.rename(point, operation.label, "", values)


def _has_value(point: Any, operation: MetricOperation) -> bool:
    pair = labels.find(point, operation.label)
    return pair is not None and pair.value.string_value == operation.label_value


class MetricsTransformProcessor(Processor):
    """Renames, copies, combines, groups and scales metrics, and changes and aggregates their labels."""

    Config = MetricsTransformConfig
    stability = "beta"
    signals = frozenset({"metrics"})
    items_at_once = ITEMS_AT_ONCE

    def __init__(self, config: MetricsTransformConfig, context: Context) -> None:
        super().__init__(config, context)
        self._transforms = [(transform, MetricSelector(transform)) for transform in config.transforms]
        self._warned: set[str] = set()

    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batch, edited only if a transform is about one of its metrics."""
        if self._concerns(batch.metrics):
            self._transform(batch.edit_metrics())
        return (batch,)

    def _concerns(self, metrics: MetricsData) -> bool:
        """Whether a transform is about one of these metrics."""
        scopes = (scope for resource in metrics.resource_metrics for scope in resource.scope_metrics)
        names = {metric.name for scope in scopes for metric in scope.metrics}
        return any(selector.names(name) for name in names for _, selector in self._transforms)

    def _transform(self, metrics: MetricsData) -> None:
        grouped: list[ResourceMetrics] = []
        for resource in metrics.resource_metrics:
            for scope in resource.scope_metrics:
                for transform, selector in self._transforms:
                    if transform.action == "group":
                        grouped += _group(resource, scope, transform, selector)
                    else:
                        self._apply(scope, transform, selector)
            keep_only(resource.scope_metrics, lambda scope: scope.metrics)
        keep_only(metrics.resource_metrics, lambda resource: resource.scope_metrics)
        metrics.resource_metrics.extend(grouped)

    def _apply(self, scope: ScopeMetrics, transform: Transform, selector: MetricSelector) -> None:
        selected = [index for index, metric in enumerate(scope.metrics) if selector.selects(metric)]
        if not selected:
            return
        if transform.action == "update":
            _update(scope, selected, transform, selector)
        elif transform.action == "insert":
            _insert(scope, selected, transform, selector)
        elif reason := mismatch([scope.metrics[index] for index in selected]):
            self._warn(transform, reason)
        else:
            _combine(scope, selected, transform, selector)

    def _warn(self, transform: Transform, reason: str) -> None:
        if transform.include not in self._warned:
            self._warned.add(transform.include)
            self.context.logger.warning("Cannot combine the metrics %s: %s", transform.include, reason)


def _update(scope: ScopeMetrics, indexes: list[int], transform: Transform, selector: MetricSelector) -> None:
    gone = []
    for index in indexes:
        metric = scope.metrics[index]
        had_points = bool(points_of(metric))
        operate(metric, transform.operations, selector.chosen)
        metric.name = selector.new_name(metric.name)
        if had_points and not points_of(metric):
            gone.append(index)
    delete_at(scope.metrics, gone)


def _insert(scope: ScopeMetrics, indexes: list[int], transform: Transform, selector: MetricSelector) -> None:
    for index in indexes:
        metric = Metric()
        metric.CopyFrom(scope.metrics[index])
        keep(metric, selector.chosen(metric))
        had_points = bool(points_of(metric))
        operate(metric, transform.operations, every_point)
        metric.name = selector.new_name(metric.name)
        if points_of(metric) or not had_points:
            scope.metrics.append(metric)


def _combine(scope: ScopeMetrics, indexes: list[int], transform: Transform, selector: MetricSelector) -> None:
    combined = combine([scope.metrics[index] for index in indexes], transform, selector)
    operate(combined, transform.operations, every_point)
    for index in reversed(indexes):
        _take(scope, index, selector)
    if points_of(combined):
        scope.metrics.append(combined)


def _take(scope: ScopeMetrics, index: int, selector: MetricSelector) -> None:
    """Removes the data points that the selector chooses, and the metric if it has no others."""
    metric = scope.metrics[index]
    chosen = set(selector.chosen(metric))
    rest = [position for position in range(len(points_of(metric))) if position not in chosen]
    if rest:
        keep(metric, rest)
    else:
        del scope.metrics[index]


def _group(
    resource: ResourceMetrics, scope: ScopeMetrics, transform: Transform, selector: MetricSelector
) -> list[ResourceMetrics]:
    """The selected metrics of a scope, moved to a copy of their resource with more attributes."""
    indexes = [index for index, metric in enumerate(scope.metrics) if selector.selects(metric)]
    if not indexes:
        return []
    group = ResourceMetrics(resource=resource.resource, schema_url=resource.schema_url)
    for key, value in transform.group_resource_labels.items():
        existing = next((pair for pair in group.resource.attributes if pair.key == key), None)
        pair = existing or group.resource.attributes.add(key=key)
        pair.value.CopyFrom(to_any_value(value))
    moved = group.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url)
    for index in indexes:
        metric = moved.metrics.add()
        metric.CopyFrom(scope.metrics[index])
        keep(metric, selector.chosen(metric))
    for index in reversed(indexes):
        _take(scope, index, selector)
    return [group]
