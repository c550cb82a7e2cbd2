"""The operations of a transform on the data points of one metric."""

from collections.abc import Callable, Sequence
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel import __version__
from otel_zernel_processors.metricstransform import labels
from otel_zernel_processors.metricstransform.aggregation import aggregate
from otel_zernel_processors.metricstransform.config import MetricOperation
from otel_zernel_processors.metricstransform.numbers import scale, toggle_type
from otel_zernel_processors.metricstransform.selecting import delete, points_of

Choose = Callable[[Metric], list[int]]
"""The indexes of the data points to change."""


def operate(metric: Metric, operations: Sequence[MetricOperation], choose: Choose) -> None:
    """Applies the operations, in order, to the chosen data points."""
    for operation in operations:
        chosen = choose(metric)
        if operation.action == "delete_label_value":
            every = points_of(metric)
            delete(metric, [index for index in chosen if _has_value(every[index], operation)])
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
            values = {one.value: one.new_value.replace("{{version}}", __version__) for one in operation.value_actions}
            return lambda point: labels.rename(point, operation.label, operation.new_label, values)
        case "toggle_scalar_data_type":
            return toggle_type
        case "experimental_scale_value":
            return lambda point: scale(point, operation.experimental_scale)
        case "aggregate_labels":
            kept = frozenset(operation.label_set)
            return lambda point: labels.keep_only(point, kept)
        case _:
            values = dict.fromkeys(operation.aggregated_values, new_value)
            return lambda point: labels.rename(point, operation.label, "", values)


def _has_value(point: Any, operation: MetricOperation) -> bool:
    pair = labels.find(point, operation.label)
    return pair is not None and pair.value.string_value == operation.label_value
