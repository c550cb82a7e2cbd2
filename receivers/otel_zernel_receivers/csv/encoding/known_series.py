"""The series of a file, each encoded once. Rows find theirs by numbers in place of texts."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.arrays import POINT_TAIL, number_point_head
from otel_zernel_receivers.csv.layouts.layout import ColumnPlan, CsvSeries
from otel_zernel_receivers.csv.parsing.rows import TextColumn

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
        found = [self._rows.get(key, -1) for key in keys]
        if -1 in found:
            for index, row in enumerate(rows.tolist()):
                if found[index] < 0:
                    found[index] = self._add_row(keys[index], [text.values[text.codes[row]] for text in texts])
            self.table = np.concatenate([self.table, np.array(self._added, _SERIES)])
            self._added = []
        return np.array(found, np.int64)

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
        factors = _factors(column.scale)
        flags = column.malformed_labels, column.maybe_percent
        self._added.append((group, resource, len(point), *factors, *flags, column.blank_from, 0, math.nan))


def _factors(scale: float) -> tuple[float, float]:
    """Multiplier and divisor of a scale. A scale of 1/n becomes a divisor: 57 % is 0.57, not 0.5700000000000001."""
    divisor = round(1 / scale) if 1e-15 < scale < 1 else 1
    return (1.0, float(divisor)) if divisor > 1 and 1 / divisor == scale else (scale, 1.0)
