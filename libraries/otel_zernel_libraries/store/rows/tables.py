"""The tables of points, and the columns of their rows in the order of the tuples."""

from dataclasses import dataclass
from typing import Final, Literal

TableName = Literal["points", "histograms", "exponential_histograms", "summaries", "exemplars", "spans"]


@dataclass(frozen=True, slots=True)
class PointTable:
    """One table of points, or that of spans. The first columns are the key, and the second is the time."""

    name: TableName
    columns: tuple[str, ...]
    key: int = 2
    """The number of columns in the key."""
    doubles: tuple[int, ...] = ()
    """The positions of the columns with a double, which may be NaN."""
    double_arrays: tuple[int, ...] = ()
    count_arrays: tuple[int, ...] = ()
    """Arrays of unsigned 64-bit numbers, which the databases keep as signed ones."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self.columns[: self.key]

    @property
    def values(self) -> tuple[str, ...]:
        return self.columns[self.key :]


_KEY: Final = ("series_id", "time")
_BEGIN: Final = ("start", "flags")
_TOTALS: Final = (*_BEGIN, "count", "sum", "min", "max")

POINTS: Final = PointTable("points", (*_KEY, "value_double", "value_int", *_BEGIN), doubles=(2,))
HISTOGRAMS: Final = PointTable(
    "histograms",
    (*_KEY, *_TOTALS, "bounds", "counts"),
    doubles=(5, 6, 7),
    double_arrays=(8,),
    count_arrays=(9,),
)
EXPONENTIAL: Final = PointTable(
    "exponential_histograms",
    (
        *(*_KEY, *_TOTALS, "scale", "zero_count", "zero_threshold"),
        *("positive_offset", "positive_counts", "negative_offset", "negative_counts"),
    ),
    doubles=(5, 6, 7, 10),
    count_arrays=(12, 14),
)
SUMMARIES: Final = PointTable(
    "summaries",
    (*_KEY, *_BEGIN, "count", "sum", "quantiles", "quantile_values"),
    doubles=(5,),
    double_arrays=(6, 7),
)
EXEMPLARS: Final = PointTable(
    "exemplars",
    (*_KEY, "position", "exemplar_time", "value_double", "value_int", "trace_id", "span_id", "encoded"),
    key=3,
    doubles=(4,),
)
SPANS: Final = PointTable(
    "spans",
    (
        *("trace_id", "time", "span_id", "end_time", "parent_span_id", "resource_id", "scope_id", "name", "kind"),
        *("status", "status_message", "attributes", "events", "links", "encoded"),
    ),
    key=3,
)
"""`time` is the start."""
POINT_TABLES: Final = (POINTS, HISTOGRAMS, EXPONENTIAL, SUMMARIES)
TABLES: Final = (EXEMPLARS, *POINT_TABLES, SPANS)
"""All tables in the order of writing: exemplars are stored if their point is not there yet."""
WITH_EXEMPLARS: Final = (POINTS, HISTOGRAMS, EXPONENTIAL)
