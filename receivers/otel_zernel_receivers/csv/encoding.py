"""Encodes rows as OTLP. The constant part of a series is encoded once; numpy fills in times and values."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from otel_zernel.otlp.arrays import number_point_head, number_point_tails
from otel_zernel.otlp.points import Descriptor, encode_metric, encode_resource_metrics
from otel_zernel_receivers.csv.layouts.layout import SCOPE, ColumnPlan, CsvSeries
from otel_zernel_receivers.csv.rows import ParsedRows, TextColumn

MAX_SERIES = 20_000
"""The maximum number of cached series, about 40 MB with the texts of dcgm-exporter. A full cache is cleared."""


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """An encoded `MetricsData`."""

    metrics: bytes
    points: int
    """The number of points."""
    malformed_labels: int
    """The number of points whose labels could not be parsed."""


@dataclass(frozen=True, slots=True, eq=False)
class _MetricGroup:
    """One metric of one resource. There is one object for each, so that identity is equality."""

    resource: bytes
    descriptor: Descriptor


@dataclass(slots=True)
class _EncodedSeries:
    """A series, encoded except for the times and values of its points."""

    group: _MetricGroup
    head: bytes
    multiplier: float
    divisor: float
    malformed_labels: bool
    maybe_percent: bool
    """As in `CsvSeries`, until a number proves it."""


class BlockEncoder:
    """Encodes blocks of rows, and caches their series."""

    def __init__(self) -> None:
        self._plan: ColumnPlan | None = None
        self._series: dict[tuple[str, ...], list[_EncodedSeries]] = {}
        """One per number column, by the texts of a row."""
        self._groups: dict[tuple[bytes, Descriptor], _MetricGroup] = {}

    def encode(self, rows: ParsedRows, times: NDArray[np.uint64], plan: ColumnPlan) -> EncodedRows:
        """A point for every number in the rows, sorted by time in each series.

        `times` are those of the rows, in ns, shape (n,).
        """
        if plan != self._plan:
            self._plan = plan
            self._clear()
        codes = _codes(rows.texts, len(rows))
        order = _order(codes, times)
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))  # the first row of each run with the same texts
        runs = np.diff(starts, append=len(order))
        keys = _keys(rows.texts, order[starts])
        series = [self._series.get(key) or self._add_series(key, plan) for key in keys]
        times = times[order]
        metrics: defaultdict[_MetricGroup, list[bytes]] = defaultdict(list)
        points = malformed_labels = 0
        for number, column in enumerate(rows.numbers):
            of_column = [of_run[number] for of_run in series]
            _find_percent(column[order], of_column, starts)
            values = _scaled(column[order], of_column, runs)
            filled = ~np.isnan(values)
            tails = number_point_tails(times[filled], values[filled])
            ends = np.cumsum(filled)[starts + runs - 1].tolist()
            start = 0
            for one, end in zip(of_column, ends, strict=True):
                if end > start:
                    metrics[one.group].append(one.head + one.head.join(tails[start:end]))
                    malformed_labels += (end - start) * one.malformed_labels
                start = end
            points += len(tails)
        return EncodedRows(_message(metrics), points, malformed_labels)

    def _add_series(self, key: tuple[str, ...], plan: ColumnPlan) -> list[_EncodedSeries]:
        """Adds the series of rows with these texts to the cache, one per number column, and returns them."""
        if len(self._series) * len(plan.numbers) >= MAX_SERIES:
            self._clear()
        texts = {name: text for (name, _), text in zip(plan.texts, key, strict=True)}
        series = self._series[key] = [self._encode_series(plan.layout.series(texts, name)) for name, _ in plan.numbers]
        return series

    def _encode_series(self, column: CsvSeries) -> _EncodedSeries:
        series = column.series
        group = self._groups.setdefault(
            (series.resource, series.descriptor), _MetricGroup(series.resource, series.descriptor)
        )
        head = number_point_head(series.attributes)
        return _EncodedSeries(group, head, *_factors(column.scale), column.malformed_labels, column.maybe_percent)

    def _clear(self) -> None:
        self._series.clear()
        self._groups.clear()


def _message(metrics: Mapping[_MetricGroup, Sequence[bytes]]) -> bytes:
    """An encoded `MetricsData` with these points."""
    resources: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for group, data_points in metrics.items():
        resources[group.resource].append(encode_metric(group.descriptor, b"".join(data_points)))
    return b"".join(encode_resource_metrics(resource, SCOPE, encoded) for resource, encoded in resources.items())


def _factors(scale: float) -> tuple[float, float]:
    """Multiplier and divisor of a scale. A scale of 1/n becomes a divisor: 57 % is 0.57, not 0.5700000000000001."""
    divisor = round(1 / scale) if 1e-15 < scale < 1 else 1
    return (1.0, float(divisor)) if divisor > 1 and 1 / divisor == scale else (scale, 1.0)


def _codes(texts: Sequence[TextColumn], count: int) -> NDArray[np.int64]:
    """A number per row, shape (count,). Rows have equal numbers if and only if they have equal texts."""
    codes, size = np.zeros(count, np.int64), 1
    for text in texts:
        if size * len(text.values) > 2**62:
            _, codes = np.unique(codes, return_inverse=True)
            size = count
        if len(text.values) > 1:
            codes = codes * len(text.values) + text.codes
            size *= len(text.values)
    return codes


def _order(codes: NDArray[np.int64], times: NDArray[np.uint64]) -> NDArray[np.intp]:
    """The order of the rows by code, then by time, then by position in the file."""
    if np.all(times[1:] >= times[:-1]):
        return np.argsort(codes, kind="stable")
    return np.lexsort((times, codes))


def _keys(texts: Sequence[TextColumn], rows: NDArray[np.intp]) -> list[tuple[str, ...]]:
    """The texts of the rows with these indices."""
    columns = [[text.values[code] for code in text.codes[rows].tolist()] for text in texts]
    return list(zip(*columns, strict=True)) if columns else [()] * len(rows)


def _find_percent(values: NDArray[np.float64], series: Sequence[_EncodedSeries], starts: NDArray[np.intp]) -> None:
    """Finds series of per cent by a number above 1. From this block on, their numbers are divided by 100."""
    if not any(one.maybe_percent for one in series):
        return
    highest = np.fmax.reduceat(values, starts)
    for one, number in zip(series, highest.tolist(), strict=True):
        if one.maybe_percent and number > 1:
            one.divisor, one.maybe_percent = 100.0, False


def _scaled(
    values: NDArray[np.float64], series: Sequence[_EncodedSeries], runs: NDArray[np.intp]
) -> NDArray[np.float64]:
    """The values in their metrics' units. Series i has the next `runs[i]` values."""
    multipliers = np.array([one.multiplier for one in series], np.float64)
    divisors = np.array([one.divisor for one in series], np.float64)
    with np.errstate(over="ignore"):  # an overflow becomes inf, which is valid in OTLP
        scaled: NDArray[np.float64] = values * np.repeat(multipliers, runs) / np.repeat(divisors, runs)
    return scaled
