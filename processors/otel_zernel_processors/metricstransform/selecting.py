"""Which metrics and data points a transform is about."""

from collections.abc import Callable
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

from otel_zernel.batch import points
from otel_zernel_libraries.conditions import Pattern, expand
from otel_zernel_processors.metricstransform.config import Transform

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
        found = {pair.key: pair.value.string_value for pair in point.attributes if pair.key in self._labels}
        return all(matches(found.get(label, "")) for label, matches in self._labels.items())

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
    delete(metric, sorted(set(range(len(points_of(metric)))).difference(indexes)))


def delete(metric: Metric, indexes: list[int]) -> None:
    """Removes the data points at these indexes, which ascend."""
    every = points_of(metric)
    if len(indexes) * 8 < len(every):  # each deletion moves the rest
        for index in reversed(indexes):
            del every[index]
    elif indexes:
        gone = set(indexes)
        kept = [point for index, point in enumerate(every) if index not in gone]
        del every[:]
        every.extend(kept)
