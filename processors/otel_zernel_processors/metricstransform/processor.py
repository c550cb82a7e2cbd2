"""The metrics transform processor."""

from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, ResourceMetrics, ScopeMetrics

from otel_zernel.batch import Batch
from otel_zernel.component import ITEMS_AT_ONCE, Context, Processor
from otel_zernel_libraries.conditions import to_any_value
from otel_zernel_processors.metricstransform.combining import combine, mismatch
from otel_zernel_processors.metricstransform.config import MetricsTransformConfig, Transform
from otel_zernel_processors.metricstransform.operations import every_point, operate
from otel_zernel_processors.metricstransform.selecting import MetricSelector, keep, points_of


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
            _drop_empty(resource.scope_metrics, "metrics")
        _drop_empty(metrics.resource_metrics, "scope_metrics")
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
    for index in reversed(gone):
        del scope.metrics[index]


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


def _drop_empty(holders: Any, name: str) -> None:
    for index in range(len(holders) - 1, -1, -1):
        if not getattr(holders[index], name):
            del holders[index]
