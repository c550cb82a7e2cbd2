"""The start times of cumulative points."""

from collections.abc import Mapping, Sequence

import numpy as np

from otel_zernel_receivers.prometheus.points.numbers import Floats, Times
from otel_zernel_receivers.prometheus.points.sample import PointKey

Start = tuple[int, float]
"""The start of a point in ns, and its last count."""


class StartTimes:
    """Finds resets by counts that decrease.

    A point starts at the time in its page. Without one, it starts at its first scrape, and after a reset at the scrape
    before: its new count was made since then.
    """

    def __init__(self, points: Sequence[PointKey], known: Mapping[PointKey, Start], time_ns: int) -> None:
        starts = [known.get(point, (time_ns, np.nan)) for point in points]
        self._points = points
        self._starts: Times = np.array([start for start, _ in starts], np.uint64)
        self._last: Floats = np.array([last for _, last in starts], np.float64)

    def update(self, counts: Floats, created: Floats, before_ns: int) -> Times:
        """The starts of all points, shape (n,), in ns.

        `counts` are the values of sums, and the counts of histograms and summaries. `created` are the times in the page
        in s, NaN without one. `before_ns` is the time of the scrape before.
        """
        with np.errstate(invalid="ignore"):
            reset = counts < self._last
            is_known = np.isfinite(created) & (created > 0) & (created < 2**63 / 1e9)
        self._starts[reset] = before_ns
        self._starts[is_known] = np.rint(created[is_known] * 1e6).astype(np.uint64) * np.uint64(1000)
        self._last = np.where(np.isnan(counts), self._last, counts)
        return self._starts

    def state(self) -> dict[PointKey, Start]:
        """The start and the last count of each point."""
        return dict(zip(self._points, zip(self._starts.tolist(), self._last.tolist(), strict=True), strict=True))
