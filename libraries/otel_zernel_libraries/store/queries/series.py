"""Series with their labels, filters, and the series that a filter accepts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_zernel_libraries.store.rows.tables import TableName
from otel_zernel_libraries.training import semconv

SHORT_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "host_id": ("host.name",),
    "gpu_id": (semconv.GPU_INDEX, "hw.id"),
    "uuid": ("hw.id",),
    "model": ("hw.model", "hw.name"),
    "job": (semconv.JOB_ID, "k8s.job.name"),
}
"""The attributes that a short name stands for. The first that a series has is its value."""
_ALTERNATIVES: Final = ("gpu_id",)
"""A filter by these accepts each of the attributes: `gpu_id=0` and `gpu_id=GPU-5fd4f087-...`."""

Attributes = Mapping[str, Any]


def label_text(value: Any) -> str:
    """The text of an attribute: `true`, `17`, and JSON for lists and maps."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def label_of(name: str, *attributes: Attributes) -> str | None:
    """The text of the first attribute that exists; None if none does. The mappings are searched in their order."""
    for key in SHORT_NAMES.get(name, (name,)):
        for some in attributes:
            if some.get(key) is not None:
                return label_text(some[key])
    return None


def has_label(name: str, wanted: frozenset[str], *attributes: Attributes) -> bool:
    """Whether a filter by this label accepts the attributes."""
    keys = SHORT_NAMES[name] if name in _ALTERNATIVES else (name,)
    return any(label_of(key, *attributes) in wanted for key in keys)


TABLE_OF: Final[Mapping[str, TableName]] = {
    "gauge": "points",
    "sum": "points",
    "histogram": "histograms",
    "exponential_histogram": "exponential_histograms",
    "summary": "summaries",
}
"""The table with the points of each type."""


@dataclass(slots=True, frozen=True, eq=False)
class SeriesEntry:
    """A series with its attributes as JSON values."""

    id: int
    metric: str
    unit: str
    type: str
    temporality: int | None
    monotonic: bool
    resource: Attributes
    attributes: Attributes

    def label(self, name: str) -> str | None:
        """The text of a label, by a short name or by the name of an attribute. Those of the point come first."""
        return self.metric if name == "metric" else label_of(name, self.attributes, self.resource)


@dataclass(slots=True, frozen=True)
class SeriesFilter:
    """The series with one of the metrics, and for each label with one of its values."""

    metrics: frozenset[str] = frozenset()
    """Empty for all."""
    labels: tuple[tuple[str, frozenset[str]], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it accepts every series."""
        return not self.metrics and not self.labels

    def accepts(self, series: SeriesEntry) -> bool:
        if self.metrics and series.metric not in self.metrics:
            return False
        return all(has_label(name, wanted, series.attributes, series.resource) for name, wanted in self.labels)


@dataclass(slots=True, frozen=True)
class SelectedSeries:
    """The series of a store that a filter accepts."""

    series: Sequence[SeriesEntry]
    ids: Mapping[TableName, Sequence[int]]
    """Their ids by the table of their points. A table without such series is not there."""
    total: int
    """The number of series in the store."""
    is_all: bool
    """Whether the filter accepts every series."""

    @classmethod
    def of(cls, wanted: SeriesFilter, store: Sequence[SeriesEntry]) -> "SelectedSeries":
        """Applies the filter to all series of a store."""
        series = store if wanted.is_empty else [*filter(wanted.accepts, store)]
        return cls(series, _by_table(series), len(store), wanted.is_empty)


def _by_table(series: Iterable[SeriesEntry]) -> Mapping[TableName, Sequence[int]]:
    ids: dict[TableName, list[int]] = {}
    for entry in series:
        ids.setdefault(TABLE_OF[entry.type], []).append(entry.id)
    return ids
