"""The durations of steps, in the counters of an HDR histogram with 3 significant digits."""

from collections import Counter
from collections.abc import Iterable

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from otel_zernel_libraries.histograms.hdr import HdrLayout, integers_below, ranks
from otel_zernel_libraries.histograms.resolution import LARGEST

_LAYOUT = HdrLayout(significant_figures=3)
_NS = 1e9  # nanoseconds to the second


class StepTimes:
    """Durations, added up from the points of `zernel.step.duration`. All results are in s."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._sum_s = 0.0
        self._longest_s = 0.0

    @classmethod
    def joined(cls, several: Iterable["StepTimes"]) -> "StepTimes":
        """The durations of several together."""
        joined = cls()
        for times in several:
            joined._counts.update(times._counts)
            joined._sum_s += times._sum_s
            joined._longest_s = max(joined._longest_s, times._longest_s)
        return joined

    def add_point(self, point: HistogramDataPoint) -> None:
        """Adds the values of a point with delta temporality and explicit bounds, in s."""
        bounds = integers_below(np.array(point.explicit_bounds, np.float64), _NS)
        highest = 0
        for position, count in enumerate(point.bucket_counts):
            if count:
                value = int(bounds[position]) if position < len(bounds) else round(point.max * _NS)
                highest = max(highest, value)
                self._counts[_LAYOUT.index_of(min(max(value, 0), LARGEST))] += count
        self._sum_s += point.sum
        self._longest_s = max(self._longest_s, point.max if point.HasField("max") else highest / _NS)

    def add(self, duration_s: float) -> None:
        """Adds one duration."""
        self._counts[_LAYOUT.index_of(min(round(duration_s * _NS), LARGEST))] += 1
        self._sum_s += duration_s
        self._longest_s = max(self._longest_s, duration_s)

    @property
    def count(self) -> int:
        """The number of durations."""
        return self._counts.total()

    @property
    def mean(self) -> float:
        """0 if there is none."""
        return self._sum_s / self.count if self.count else 0.0

    @property
    def longest(self) -> float:
        """The exact maximum."""
        return self._longest_s

    @property
    def jitter(self) -> float:
        """The standard deviation as a share of the mean; 0 for fewer than two durations."""
        if self.count < 2 or not self._sum_s:
            return 0.0
        values, counts = self.values()
        deviation = np.sqrt(np.average((values - np.average(values, weights=counts)) ** 2, weights=counts))
        return float(deviation / np.average(values, weights=counts))

    def percentile(self, percent: float) -> float:
        """The duration at a percentile (0 to 100), as `percentiles` computes it; 0 if there is none."""
        if not self._counts:
            return 0.0
        index = np.array(sorted(self._counts))
        reached = np.cumsum([self._counts[at] for at in index])
        at = index[np.searchsorted(reached, ranks(reached[-1], percent))]
        return min(float(_LAYOUT.at_percentile(at, percent)) / _NS, self._longest_s)

    def values(self) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """The different durations (s), ascending, and how often each occurred; both of shape (n,)."""
        index = np.array(sorted(self._counts), np.int64)
        middle = (_LAYOUT.lowest(index) + _LAYOUT.highest_equivalent(index)) / 2 / _NS
        return middle, np.array([self._counts[at] for at in index], np.int64)
