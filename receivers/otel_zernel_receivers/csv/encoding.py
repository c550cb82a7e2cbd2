"""Encodes rows as OTLP. Numpy fills in times and values: Python's work is per series and block, not per row.

Messages without times and values are kept, since most blocks of a file have the same runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from otel_zernel.otlp.points import Descriptor, encode_resource_metrics, metric_around
from otel_zernel_libraries.arrays import POINT_TAIL, exact_factors, fill_number_points, number_point_head
from otel_zernel_libraries.gpu_names.dcgm_blanks import EXACT, SMALLEST
from otel_zernel_receivers.csv.layouts.layout import SCOPE, ColumnPlan, CsvSeries
from otel_zernel_receivers.csv.parsing.rows import ParsedRows, TextColumn

MAX_SERIES = 20_000
"""The number of series, and of texts of a column, from which on the cache is cleared before the next block.

With the texts of dcgm-exporter, they take about 40 MB.
"""
_SERIES = np.dtype(
    [
        ("group", np.int64),  # the number of its metric and resource
        ("resource", np.int64),
        ("size", np.int64),  # of a point, in bytes
        ("multiplier", np.float64),
        ("divisor", np.float64),
        ("malformed_labels", np.bool_),
        ("maybe_percent", np.bool_),  # as in `CsvSeries`, until a number proves it
        ("blank_from", np.float64),
        ("last_time", np.uint64),  # of the newest cell, in ns since 1970
        ("last_value", np.float64),  # of that time
    ]
)


class KnownRows:
    """The series of rows with one plan, by the texts of the rows. A row has one series for each number column."""

    def __init__(self, plan: ColumnPlan) -> None:
        self.plan = plan
        self.generation = 0
        """Counts how often the cache was cleared. The numbers of series are valid within one generation."""
        self._clear()

    def _clear(self) -> None:
        self.generation += 1
        self.table = np.zeros(0, _SERIES)
        """Shape (series,)."""
        self.points: list[bytes] = []
        """A point of each series, without time and value."""
        self.groups: list[tuple[bytes, Descriptor]] = []
        """Encoded resource and descriptor of each metric."""
        self.group_of: list[int] = []
        """The number of the metric of each series."""
        self._group_numbers: dict[tuple[bytes, Descriptor], int] = {}
        self._resource_numbers: dict[bytes, int] = {}
        self._texts: list[dict[str, int]] = [{} for _ in self.plan.texts]
        """The number of each text, by column."""
        self._rows: dict[bytes, int] = {}
        """The number of the first series of a row, by the numbers of its texts."""
        self._added: list[tuple[int, int, int, float, float, bool, bool, float, int, float]] = []
        """The end of the table, while series are added."""

    def find(self, texts: Sequence[TextColumn], rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """The number of the first series of each of these rows, shape (rows,). The next columns have the next numbers.

        Numbers are valid until `generation` changes, at most until the next call.
        """
        if max(len(self.points), *map(len, self._texts), 0) >= MAX_SERIES:
            self._clear()
        keys = self._keys(texts, rows)
        indices = [self._rows.get(key, -1) for key in keys]
        if -1 in indices:
            for index, row in enumerate(rows.tolist()):
                if indices[index] < 0:
                    indices[index] = self._add_row(keys[index], [text.values[text.codes[row]] for text in texts])
            self.table = np.concatenate([self.table, np.array(self._added, _SERIES)])
            self._added = []
        return np.array(indices, np.int64)

    def find_percent(self, series: NDArray[np.int64], highest: NDArray[np.float64]) -> None:
        """Finds series of per cent by a highest number above 1. From now on, their numbers are divided by 100."""
        proven = series[self.table["maybe_percent"][series] & (highest > 1)]
        self.table["divisor"][proven] = 100.0
        self.table["maybe_percent"][proven] = False

    def _keys(self, texts: Sequence[TextColumn], rows: NDArray[np.intp]) -> list[bytes]:
        """The numbers of the texts of these rows. Equal texts have equal keys, also in other blocks."""
        if not texts:
            return [b""] * len(rows)
        numbers = np.empty((len(rows), len(texts)), np.int32)
        for column, (text, known) in enumerate(zip(texts, self._texts, strict=True)):
            of_values = np.array([known.setdefault(value, len(known)) for value in text.values], np.int32)
            numbers[:, column] = of_values[text.codes[rows]]
        keys: list[bytes] = numbers.view(f"V{numbers.itemsize * len(texts)}").ravel().tolist()
        return keys

    def _add_row(self, key: bytes, texts: Sequence[str]) -> int:
        """Adds the series of a row with these texts, one per number column. Returns the number of the first one."""
        if key not in self._rows:
            self._rows[key] = len(self.points)
            by_name = {name: text for (name, _), text in zip(self.plan.texts, texts, strict=True)}
            for name, _ in self.plan.numbers:
                self._add(self.plan.layout.series(by_name, name))
        return self._rows[key]

    def _add(self, column: CsvSeries) -> None:
        series = column.series
        identity = series.resource, series.descriptor
        group = self._group_numbers.setdefault(identity, len(self.groups))
        if group == len(self.groups):
            self.groups.append(identity)
        resource = self._resource_numbers.setdefault(series.resource, len(self._resource_numbers))
        point = number_point_head(series.attributes) + bytes(POINT_TAIL)
        self.points.append(point)
        self.group_of.append(group)
        factors = exact_factors(column.scale)
        flags = column.malformed_labels, column.maybe_percent
        self._added.append((group, resource, len(point), *factors, *flags, column.blank_from, 0, math.nan))


MAX_KEPT = 32 * 2**20
"""Bytes of templates from which on all are dropped."""


@dataclass(frozen=True, slots=True, eq=False)
class ResourceTemplate:
    """An encoded `ResourceMetrics`, whose points have no times and values."""

    encoded: bytes
    begins: NDArray[np.int64]
    """The offset of each run's first point, shape (runs,)."""


class Templates:
    """The templates of a file's resources, by the numbers of their series and of the points of each."""

    def __init__(self, known: KnownRows) -> None:
        self.known = known
        self._kept: dict[bytes, ResourceTemplate] = {}
        self._size = 0
        self._generation = known.generation

    def message(self, series: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[bytearray, NDArray[np.int64]]:
        """A `MetricsData` with `counts[i]` points of `series[i]`, and the offset of the first point of each series.

        The series are sorted by resource and metric.
        """
        if self._size > MAX_KEPT or self._generation != self.known.generation:
            self._kept = {}
            self._size = 0
            self._generation = self.known.generation
        firsts = np.flatnonzero(np.diff(self.known.table["resource"][series], prepend=-1))  # of each resource
        bounds = [*firsts.tolist(), len(series)]
        runs = np.stack([series, counts], axis=1)
        keys, width = runs.tobytes(), runs.itemsize * 2
        used: list[ResourceTemplate] = []
        for begin, end in pairwise(bounds):
            key = keys[begin * width : end * width]
            used.append(self._kept.get(key) or self._add(key, series[begin:end].tolist(), counts[begin:end].tolist()))
        sizes = np.array([len(template.encoded) for template in used], np.int64)
        places = np.repeat(np.cumsum(sizes) - sizes, np.diff(bounds))
        message = bytearray().join([template.encoded for template in used])
        return message, places + np.concatenate([template.begins for template in used])

    def _add(self, key: bytes, series: Sequence[int], counts: Sequence[int]) -> ResourceTemplate:
        template = self._kept[key] = self._encode(series, counts)
        self._size += len(key) + len(template.encoded) + template.begins.nbytes
        return template

    def _encode(self, series: Sequence[int], counts: Sequence[int]) -> ResourceTemplate:
        """The template of one resource."""
        resource, parts, begins, end = b"", list[bytes](), list[int](), 0
        for group, runs in groupby(zip(series, counts, strict=True), lambda run: self.known.group_of[run[0]]):
            resource, descriptor = self.known.groups[group]
            points = [self.known.points[key_] * count for key_, count in runs]
            before, after = metric_around(descriptor, sum(map(len, points)))
            end += len(before)
            for of_series in points:
                begins.append(end)
                end += len(of_series)
            end += len(after)
            parts += [before, *points, after]
        encoded = encode_resource_metrics(resource, SCOPE, parts)
        return ResourceTemplate(encoded, np.array(begins, np.int64) + len(encoded) - end)


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of consecutive cells of one series. Run i has `lengths[i]` cells, from `starts[i]` on."""

    series: NDArray[np.int64]
    """The number of each run's series in `KnownRows`."""
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def find_conflicts(
    times: NDArray[np.uint64], values: NDArray[np.float64], runs: Runs, known: KnownRows
) -> NDArray[np.bool_]:
    """The conflicting cells, shape (columns, n). Remembers the newest cell of each series for the next block.

    `times` are those of the ordered rows, shape (n,), `values` those of each number column, shape (columns, n).
    """
    conflicting = np.zeros(values.shape, np.bool_)
    if not known.plan.layout.name:  # the user of a custom layout has named the columns that identify
        return conflicting
    starts = runs.starts[: len(runs.starts) // len(values)]
    lasts = np.append(starts[1:], len(times)) - 1
    series = runs.series.reshape(len(values), -1)
    is_later = np.zeros(len(times), np.bool_)  # rows with the time of the row before
    is_later[1:] = times[1:] == times[:-1]
    is_later[starts] = False
    moments = np.cumsum(~is_later) - 1
    for column, cells in enumerate(values):
        table = known.table[series[column]]
        is_first = np.zeros(len(times), np.bool_)
        is_first[starts] = table["last_time"] == times[starts]
        first = cells  # the value of each moment
        if is_later.any() or is_first.any():
            first = np.full(moments[-1] + 1, np.nan)
            filled = np.flatnonzero(~np.isnan(cells))[::-1]
            first[moments[filled]] = cells[filled]  # the first cell is written last
            goes_on = is_first[starts] & ~np.isnan(table["last_value"])
            first[moments[starts[goes_on]]] = table["last_value"][goes_on]
            conflicting[column, filled] = cells[filled] != first[moments[filled]]
        known.table["last_time"][series[column]] = times[lasts]
        known.table["last_value"][series[column]] = first[moments[lasts]]
    return conflicting


@dataclass(frozen=True, slots=True)
class EncodedRows:
    """An encoded `MetricsData`."""

    metrics: bytes
    points: int
    """The number of points."""
    malformed_labels: int
    """The number of points whose labels could not be parsed."""
    conflicting_rows: int = 0
    """The number of rows with another value for a time and a series than an earlier row, which was left out."""
    conflict: str = ""
    """A sentence about two different values of one series at one time."""


class BlockEncoder:
    """Encodes blocks of rows, and caches their series."""

    def __init__(self) -> None:
        self._templates: Templates | None = None

    def encode(self, rows: ParsedRows, times: NDArray[np.uint64], plan: ColumnPlan) -> EncodedRows:
        """A point for every number in the rows, sorted by time in each series.

        `times` are those of the rows, in ns, shape (n,).
        """
        if not len(rows):
            return EncodedRows(b"", 0, 0)
        if self._templates is None or self._templates.known.plan != plan:
            self._templates = Templates(KnownRows(plan))
        known = self._templates.known
        order, runs = _runs(rows, times, known)
        cells = _without_blanks(np.concatenate([column[order] for column in rows.numbers]), runs, known)
        values = _scaled(cells, runs, known)
        conflicting = find_conflicts(times[order], values.reshape(len(rows.numbers), -1), runs, known)
        conflict = _conflict(times[order], conflicting, plan)
        if plan.identifies:  # the program writes faster than its times change
            conflicting[:] = False
        values[conflicting.ravel()] = np.nan
        filled = ~np.isnan(values)
        counts = np.add.reduceat(filled, runs.starts, dtype=np.int64)
        times = np.tile(times[order], len(rows.numbers))[filled]
        metrics = _message(runs.series, counts, times, values[filled], self._templates)
        malformed_labels = int(counts[known.table["malformed_labels"][runs.series]].sum())
        conflicting_rows = int(conflicting.any(axis=0).sum())
        return EncodedRows(metrics, len(times), malformed_labels, conflicting_rows, conflict)


def _runs(rows: ParsedRows, times: NDArray[np.uint64], known: KnownRows) -> tuple[NDArray[np.intp], Runs]:
    """The order of the rows, and the runs of their cells: first all rows of the first number column, and so on."""
    codes = _codes(rows.texts, len(rows))
    order = _order(codes, times)
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))  # the first row of each run with the same texts
    columns = np.arange(len(rows.numbers)).reshape(-1, 1)
    series = known.find(rows.texts, order[starts]) + columns
    lengths = np.tile(np.diff(starts, append=len(order)), len(columns))
    return order, Runs(series.ravel(), (starts + columns * len(order)).ravel(), lengths)


def _conflict(times: NDArray[np.uint64], conflicting: NDArray[np.bool_], plan: ColumnPlan) -> str:
    """A sentence about the first of the conflicting cells, shape (columns, n); empty if there are none."""
    columns, rows = np.nonzero(conflicting)
    if not len(columns):
        return ""
    moment = np.datetime_as_string(times[rows[0]].astype("datetime64[ns]"), "ms")
    name, index = plan.numbers[columns[0]]
    column = plan.header[index].strip() if plan.header else name
    return (
        f"several rows of {moment}Z are one series but have different values of {column!r}: "
        "add a column that tells them apart, such as the uuid or index of the GPU"
    )


def _message(
    series: NDArray[np.int64],
    counts: NDArray[np.int64],
    times: NDArray[np.uint64],
    values: NDArray[np.float64],
    templates: Templates,
) -> bytes:
    """An encoded `MetricsData`. Run i is of `series[i]`, and has the next `counts[i]` of the times and values."""
    known = templates.known
    order = np.lexsort((series, known.table["group"][series], known.table["resource"][series]))
    order = order[counts[order] > 0]
    if not len(order):
        return b""
    message, places = templates.message(series[order], counts[order])
    begins = np.zeros(len(series), np.int64)
    begins[order] = places
    sizes = known.table["size"][series]
    before = np.cumsum(counts * sizes) - counts * sizes  # the bytes of the runs before each run
    ends = np.cumsum(np.repeat(sizes, counts)) + np.repeat(begins - before, counts)
    fill_number_points(message, ends, times, values)
    return bytes(message)


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


def _without_blanks(cells: NDArray[np.float64], runs: Runs, known: KnownRows) -> NDArray[np.float64]:
    """The cells, with NaN for DCGM's blanks. The array may be changed."""
    large = np.flatnonzero(cells >= SMALLEST)
    if len(large):
        limits = np.repeat(known.table["blank_from"][runs.series], runs.lengths)[large]
        is_blank = (cells[large] >= limits) | (np.isfinite(limits) & np.isin(cells[large], list(EXACT)))
        cells[large[is_blank]] = np.nan
    return cells


def _scaled(cells: NDArray[np.float64], runs: Runs, known: KnownRows) -> NDArray[np.float64]:
    """The cells in the units of their metrics."""
    if known.table["maybe_percent"][runs.series].any():
        known.find_percent(runs.series, np.fmax.reduceat(cells, runs.starts))
    of_runs = known.table[runs.series]
    with np.errstate(over="ignore"):  # an overflow becomes inf, which is valid in OTLP
        scaled: NDArray[np.float64] = (
            cells * np.repeat(of_runs["multiplier"], runs.lengths) / np.repeat(of_runs["divisor"], runs.lengths)
        )
    return scaled
