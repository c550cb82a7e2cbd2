"""Aggregates of one group of series in one window of time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from otel_zernel_libraries.store.queries.series import SeriesEntry

Kind = Literal["value", "counter", "delta", "histogram", "exponential_histogram", "summary"]
"""How points are aggregated: by their values, by the increase of cumulative sums, by the sum of deltas, and so on."""
Place = tuple[int, int]
"""The number of a group and the number of a window."""

DELTA: Final = 1
"""OTLP's AGGREGATION_TEMPORALITY_DELTA."""


@dataclass(slots=True)
class Cell:
    """The aggregates; None for those that do not exist."""

    count: int = 0
    """Points, or the observations that histograms and summaries count."""
    total: float | None = None
    lowest: float | None = None
    highest: float | None = None
    quantiles: Mapping[float, float] = field(default_factory=dict)

    def result(self, kind: Kind, name: str, seconds: float) -> float | int | None:
        """One aggregate: avg, min, max, sum, count, rate (per second of the window) or p50 and the like."""
        is_flow = kind in ("counter", "delta")
        if name == "count":
            return self.count
        if name == "sum":
            return self.total
        if name == "rate":
            flow = self.total if is_flow else None if kind == "value" else self.count
            return None if flow is None else flow / seconds
        if is_flow:
            return None
        if name == "avg":
            return None if self.total is None or not self.count else self.total / self.count
        if name in ("min", "max"):
            return self.lowest if name == "min" else self.highest
        return self.quantiles.get(quantile_of(name))


def quantile_of(name: str) -> float:
    """0.99 for `p99`. Raises `ValueError` for another name."""
    if not name.startswith("p") or not name[1:].isdecimal() or not name.isascii() or int(name[1:]) > 100:
        raise ValueError(name)
    return int(name[1:]) / 100


def kind_of(series: SeriesEntry) -> Kind:
    """How the points of a series are aggregated. A sum that may fall is a value, as a gauge."""
    if series.type == "sum":
        return "delta" if series.temporality == DELTA else "counter" if series.monotonic else "value"
    kinds: dict[str, Kind] = {
        "gauge": "value",
        "histogram": "histogram",
        "exponential_histogram": "exponential_histogram",
        "summary": "summary",
    }
    return kinds[series.type]
