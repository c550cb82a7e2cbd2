"""Series with their labels, filters, and the series that a filter accepts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from otel_zernel_libraries.store.queries.labels import Attributes, has_label, label_of
from otel_zernel_libraries.store.rows.tables import TableName

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
    found: dict[TableName, list[int]] = {}
    for one in series:
        found.setdefault(TABLE_OF[one.type], []).append(one.id)
    return found
