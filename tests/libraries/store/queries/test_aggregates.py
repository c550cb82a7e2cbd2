"""Aggregates of any points equal those of a plain model, which adds up the same points one by one."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import floor, fsum, inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.queries.aggregation import Aggregate, aggregated, grouped
from otel_zernel_libraries.store.queries.catalogue import Catalogue
from otel_zernel_libraries.store.queries.numbers import Windows
from otel_zernel_libraries.store.queries.series import SeriesFilter
from tests.libraries.store.given import new_stores, reader, writer
from tests.libraries.store.queries.drawn import (
    BEGIN,
    SECOND,
    DrawnPoint,
    DrawnSeries,
    drawn_labels,
    drawn_series,
    drawn_windows,
    encoded,
)

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


EXAMPLES = {"sqlite": 40, "postgresql": 15}
Store = tuple[int, Callable[[Path], WritableStoreConfig]]
"""The number of examples, and the settings of a new store."""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Store:
    return EXAMPLES[request.param], new_stores(request)


async def answered(
    settings: WritableStoreConfig, series: list[DrawnSeries], labels: list[str], windows: Windows
) -> list[Aggregate]:
    """The aggregates of the stored series."""
    store, reading = writer(settings), reader(settings)
    try:
        await store.write(Batch(metrics=encoded(series)), 0)
        catalogue = Catalogue(reading, 1000)
        await catalogue.refresh(await reading.state(), 0.0)
        groups = grouped((await catalogue.selected(SeriesFilter())).series, labels)
        return await aggregated(reading, groups, windows, QUANTILES, 10_000)
    finally:
        await reading.close()
        await store.close()


def test_aggregates_by_any_labels_and_windows_are_those_of_the_model(store: Store) -> None:
    many, new_store = store

    async def answers(series: list[DrawnSeries], labels: list[str], windows: Windows) -> list[Aggregate]:
        with tempfile.TemporaryDirectory() as folder:
            return await answered(new_store(Path(folder)), series, labels, windows)

    @settings(
        phases=[Phase.generate],
        max_examples=many,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[*HealthCheck],
    )
    @given(drawn_series(), drawn_labels(), drawn_windows())
    def run(series: list[DrawnSeries], labels: list[str], windows: Windows) -> None:
        found = asyncio.run(answers(series, labels, windows))
        wanted = model_cells(series, labels, windows)
        assert {(one.group.metric, one.group.labels, one.window) for one in found} == {*wanted}
        for one in found:
            begin, end = windows.span(one.window)
            check(one, wanted[one.group.metric, one.group.labels, one.window], (end - begin) / 1e9)

    run()


def check(found: Aggregate, wanted: ModelCell, seconds: float) -> None:
    kind = found.group.kind
    for name in ("count", "sum", "avg", "min", "max", "rate"):
        value, expected = found.cell.result(kind, name, seconds), wanted.result(name, seconds)
        assert (value is None) == (expected is None), (name, value, expected)
        assert value is None or value == pytest.approx(expected, rel=1e-12, abs=1e-9), name
    for quantile in QUANTILES:
        wanted.check_quantile(quantile, found.cell.result(kind, f"p{round(quantile * 100)}", seconds))
