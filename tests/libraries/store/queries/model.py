"""A plain model of aggregates: it keeps every value and every observation of a group and a window."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, fsum, inf

import pytest

from otel_zernel_libraries.store.queries.numbers import Windows
from tests.libraries.store.queries.drawn import BEGIN, SECOND, DrawnPoint, DrawnSeries

QUANTILES = (0.5, 0.9, 0.99)
Place = tuple[str, tuple[str | None, ...], int]
"""A metric, the labels of its group, and the number of a window."""


@dataclass(slots=True)
class ModelCell:
    """Everything in one group and window."""

    kind: str
    points: int = 0
    values: list[float] = field(default_factory=list)
    """Values of gauges, increases of counters, deltas, and sums of the observations of distributions."""
    buckets: list[tuple[DrawnSeries, float]] = field(default_factory=list)
    """The bucket of each observation of a distribution, with its series."""

    def result(self, name: str, seconds: float) -> float | None:
        """One aggregate; None for those that a kind does not have."""
        if self.kind in ("explicit", "exponential", "summary"):
            return self._of_observed(name, seconds)
        if name in ("count", "sum"):
            return self.points if name == "count" else fsum(self.values)
        if self.kind in ("counter", "delta"):
            return fsum(self.values) / seconds if name == "rate" else None
        functions = {"avg": lambda: fsum(self.values) / self.points, "min": lambda: min(self.values)}
        functions["max"] = lambda: max(self.values)
        return functions[name]() if name in functions else None

    def _of_observed(self, name: str, seconds: float) -> float | None:
        count, total = len(self.buckets), fsum(self.values)
        known = {"count": count, "sum": total, "rate": count / seconds, "avg": total / count if count else None}
        return known.get(name)

    def check_quantile(self, quantile: float, found: float | None) -> None:
        """An exact value for gauges, and the bucket of the exact value for histograms."""
        if self.kind in ("gauge", "level"):
            assert found == pytest.approx(_exact(sorted(self.values), quantile), rel=1e-12, abs=1e-9)
        elif self.kind in ("counter", "delta", "summary") or not self.buckets:
            assert found is None
        elif any(series.moves for series, _ in self.buckets):  # as exact as the bounds that the points have in common
            assert found is None or -10 <= found <= 100
        else:
            assert found is not None
            low, high = self._bucket(quantile)
            assert low * (1 - 1e-9) - 1e-9 <= found <= high * (1 + 1e-9) + 1e-9

    def _bucket(self, quantile: float) -> tuple[float, float]:
        """The bucket in which the ranked observation is, after all histograms got common buckets."""
        if self.kind == "exponential":
            scale = min(series.scale for series, _ in self.buckets)
            merged = [one if one == -inf else int(one) >> (series.scale - scale) for series, one in self.buckets]
            index = self._ranked(sorted(merged), quantile)
            return (0.0, 0.0) if index == -inf else (2.0 ** (index / 2**scale), 2.0 ** ((index + 1) / 2**scale))
        bounds = sorted({bound for series, _ in self.buckets for bound in series.bounds})
        upper = self._ranked(sorted(one for _, one in self.buckets), quantile)
        if upper == inf:
            return bounds[-1], bounds[-1]
        place = bounds.index(upper)
        return (bounds[place - 1] if place else min(0.0, bounds[0])), upper

    def _ranked(self, ordered: Sequence[float], quantile: float) -> float:
        return next(value for place, value in enumerate(ordered, 1) if place >= quantile * len(ordered))


def _exact(ordered: Sequence[float], quantile: float) -> float:
    place = quantile * (len(ordered) - 1)
    low = floor(place)
    return ordered[low] + (place - low) * (ordered[min(low + 1, len(ordered) - 1)] - ordered[low])


def model_cells(series: Iterable[DrawnSeries], labels: Sequence[str], windows: Windows) -> dict[Place, ModelCell]:
    """The cells that have a point."""
    found: dict[Place, ModelCell] = {}
    for one in series:
        texts = {"host_id": one.host, "gpu_id": str(one.gpu)}
        before: DrawnPoint | None = None
        for point in one.points:
            time = BEGIN + point.second * SECOND
            if point.value is None and one.kind not in ("explicit", "exponential", "summary"):
                continue
            if windows.start_ns <= time < windows.end_ns:
                window = (time - windows.start_ns) // windows.step_ns
                place = one.metric, tuple(texts.get(name) for name in labels), window
                _add(found, place, one, point, before, windows)
            before = point
    return found


def _add(
    found: dict[Place, ModelCell],
    place: Place,
    series: DrawnSeries,
    point: DrawnPoint,
    before: DrawnPoint | None,
    windows: Windows,
) -> None:
    """Adds a point to its cell, and makes the cell if the point has something to add."""
    began = BEGIN + point.start * SECOND >= windows.start_ns if point.start is not None else False
    restarted = False
    if point.start is not None and before is not None and before.start is not None:
        restarted = point.start > before.start and point.start >= before.second
    if series.kind in ("explicit", "exponential", "summary"):
        known = _before(series, point, before, began=began, restarted=restarted)
        if known is not None:
            cell = found.setdefault(place, ModelCell(series.kind))
            increase = _buckets(series, point.observed) - _buckets(series, known)
            cell.buckets += [(series, one) for one in increase.elements()]
            cell.values.append(sum(point.observed) - sum(known))
        return
    cell = found.setdefault(place, ModelCell(series.kind))
    cell.points += 1
    value = point.value or 0
    if series.kind != "counter":
        cell.values.append(value)
    elif before is None:
        cell.values.append(value if began else 0)
    else:
        last = before.value or 0
        cell.values.append(value if restarted or value < last else value - last)


def _before(
    series: DrawnSeries, point: DrawnPoint, before: DrawnPoint | None, *, began: bool, restarted: bool
) -> Sequence[float] | None:
    """The observations that a point has in common with the one before; None if nobody knows them."""
    if not series.is_cumulative or restarted:
        return ()
    if before is None:
        return () if began else None
    if series.moves:
        return before.observed
    increase = _buckets(series, point.observed)
    increase.subtract(_buckets(series, before.observed))
    return () if min(increase.values(), default=0) < 0 else before.observed


def _buckets(series: DrawnSeries, observed: Iterable[float]) -> Counter[float]:
    return Counter(map(series.bucket, observed))
