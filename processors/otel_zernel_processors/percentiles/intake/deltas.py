"""Recognises deltas that were counted before: a sender repeats a request whose answer was lost."""

from collections.abc import Hashable
from typing import Final

from otel_zernel_processors.percentiles.intake.distribution import HistogramPoint

_MOST: Final = 100_000
"""Deltas in each of the two sets, about 10 MB."""


class RepeatedDeltas:
    """The newest deltas, at least 100,000 of them. Older ones are forgotten."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._newest: set[int] = set()
        self._older: set[int] = set()

    def add(self, series: Hashable, point: HistogramPoint) -> bool:
        """Whether the delta is new. A delta without a time always is.

        Only an equal point of the same series is a repetition: two senders may share a series.
        """
        if not point.time_unix_nano:
            return True
        seen = hash((series, point.SerializeToString(deterministic=True)))
        if seen in self._newest or seen in self._older:
            return False
        if len(self._newest) >= self._most:
            self._newest, self._older = set(), self._newest
        self._newest.add(seen)
        return True
