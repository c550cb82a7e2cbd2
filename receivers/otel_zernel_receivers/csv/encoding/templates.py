"""Encoded messages without times and values. They are kept, since most blocks of a file have the same runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from otel_zernel.otlp.points import encode_resource_metrics, metric_around
from otel_zernel_receivers.csv.encoding.known_series import KnownRows
from otel_zernel_receivers.csv.layouts.layout import SCOPE

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
            self._kept, self._size, self._generation = {}, 0, self.known.generation
        firsts = np.flatnonzero(np.diff(self.known.table["resource"][series], prepend=-1))  # of each resource
        bounds = [*firsts.tolist(), len(series)]
        runs = np.stack([series, counts], axis=1)
        keys, width = runs.tobytes(), runs.itemsize * 2
        found: list[ResourceTemplate] = []
        for begin, end in pairwise(bounds):
            key = keys[begin * width : end * width]
            found.append(self._kept.get(key) or self._add(key, series[begin:end].tolist(), counts[begin:end].tolist()))
        sizes = np.array([len(one.encoded) for one in found], np.int64)
        places = np.repeat(np.cumsum(sizes) - sizes, np.diff(bounds))
        message = bytearray().join([one.encoded for one in found])
        return message, places + np.concatenate([one.begins for one in found])

    def _add(self, key: bytes, series: Sequence[int], counts: Sequence[int]) -> ResourceTemplate:
        template = self._kept[key] = self._encode(series, counts)
        self._size += len(key) + len(template.encoded) + template.begins.nbytes
        return template

    def _encode(self, series: Sequence[int], counts: Sequence[int]) -> ResourceTemplate:
        """The template of one resource."""
        resource, parts, begins, end = b"", list[bytes](), list[int](), 0
        for group, runs in groupby(zip(series, counts, strict=True), lambda run: self.known.group_of[run[0]]):
            resource, descriptor = self.known.groups[group]
            points = [self.known.points[one] * count for one, count in runs]
            before, after = metric_around(descriptor, sum(map(len, points)))
            end += len(before)
            for of_series in points:
                begins.append(end)
                end += len(of_series)
            end += len(after)
            parts += [before, *points, after]
        encoded = encode_resource_metrics(resource, SCOPE, parts)
        return ResourceTemplate(encoded, np.array(begins, np.int64) + len(encoded) - end)
