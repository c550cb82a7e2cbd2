"""The configuration of the metrics transform processor. The keys are those of the OpenTelemetry Collector.

There, a label is an attribute of a data point.
"""

from typing import Literal

from pydantic import Field, model_validator

from otel_zernel.component import ComponentConfig
from otel_zernel.types import Section
from otel_zernel_libraries.conditions import Pattern

Aggregation = Literal["sum", "mean", "min", "max", "count", "median"]
OperationName = Literal[
    "add_label",
    "update_label",
    "delete_label_value",
    "toggle_scalar_data_type",
    "experimental_scale_value",
    "aggregate_labels",
    "aggregate_label_values",
]

_NEEDED: dict[str, tuple[str, ...]] = {
    "add_label": ("new_label", "new_value"),
    "update_label": ("label",),
    "delete_label_value": ("label", "label_value"),
    "toggle_scalar_data_type": (),
    "experimental_scale_value": ("experimental_scale",),
    "aggregate_labels": ("aggregation_type",),
    "aggregate_label_values": ("label", "aggregated_values", "new_value", "aggregation_type"),
    "update": (),
    "insert": ("new_name",),
    "combine": ("new_name", "aggregation_type"),
    "group": ("group_resource_labels",),
}
"""The settings that each action needs."""


class ValueAction(Section):
    """A value of a label to replace."""

    value: str
    new_value: str


class MetricOperation(Section):
    """One change to the data points of a metric."""

    action: OperationName
    label: str = ""
    new_label: str = ""
    label_value: str = ""
    """For `delete_label_value`: data points with this value are removed."""
    new_value: str = ""
    """`{{version}}` in it is the collector's version."""
    value_actions: tuple[ValueAction, ...] = ()
    """For `update_label`: the values to replace."""
    label_set: tuple[str, ...] = ()
    """For `aggregate_labels`: the labels to keep."""
    aggregated_values: tuple[str, ...] = ()
    """For `aggregate_label_values`: the values that become `new_value`."""
    aggregation_type: Aggregation | None = None
    experimental_scale: float = 0.0
    """For `experimental_scale_value`: the factor."""

    @model_validator(mode="after")
    def _is_complete(self) -> "MetricOperation":
        _check_needed(self, self.action)
        return self


class Transform(Section):
    """One change to the metrics with matching names."""

    include: str = Field(min_length=1)
    """The name of the metric, or with `match_type: regexp` an expression that is found in it."""
    match_type: Literal["strict", "regexp"] = "strict"
    experimental_match_labels: dict[str, str] = Field(default_factory=dict)
    """Selects data points by labels: by value, or with `match_type: regexp` by expression."""
    action: Literal["update", "insert", "combine", "group"]
    """`update` changes the metric, `insert` a copy, `combine` joins all matching metrics into a new one, and `group`
    moves them to a resource of their own."""
    new_name: str = ""
    """The new name. With `match_type: regexp`, `${1}` and `${name}` are groups of the match."""
    aggregation_type: Aggregation | None = None
    """For `combine`."""
    submatch_case: Literal["lower", "upper", ""] = ""
    """For `combine`: the case of label values that come from groups of the match."""
    group_resource_labels: dict[str, str] = Field(default_factory=dict)
    """For `group`: attributes of the new resource."""
    operations: tuple[MetricOperation, ...] = ()
    """The changes to the data points, in order."""

    @model_validator(mode="after")
    def _is_complete(self) -> "Transform":
        _check_needed(self, self.action)
        if self.match_type == "regexp":
            for text in (self.include, *self.experimental_match_labels.values()):
                Pattern(text)
        return self


class MetricsTransformConfig(ComponentConfig):
    """The changes to metrics, in order. Later ones see the results of earlier ones."""

    transforms: tuple[Transform, ...] = Field(min_length=1)


def _check_needed(section: Section, action: str) -> None:
    missing = [name for name in _NEEDED[action] if not getattr(section, name)]
    if missing:
        raise ValueError(f"the action {action} needs {' and '.join(missing)}")
