"""The series that a conversion remembers, the least recently updated first."""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

from otel_zernel_libraries.histograms.temporality.memory import SeriesMemoryConfig

_WEIGHT = 160
"""Buckets for each of `max_series` on average: larger histograms take the room of several series."""


class Remembered(Protocol):
    """What is remembered of a series."""

    weight: int
    """The number of values that it keeps, for the limit of memory."""
    updated_ns: int
    """When it was stored, in ns since 1970."""


AnyTrack = TypeVar("AnyTrack", bound=Remembered)


class SeriesMemory(Generic[AnyTrack]):
    """The track of each series, with limits for their number, their buckets and their age."""

    def __init__(self, config: SeriesMemoryConfig) -> None:
        self.limit(config)
        self._tracks: OrderedDict[bytes, AnyTrack] = OrderedDict()
        self._weight = 0

    def limit(self, config: SeriesMemoryConfig) -> None:
        """Sets the limits. Series beyond lower ones stay until they are idle."""
        self._most = config.max_series
        self._idle_ns = round(config.idle_timeout * 1e9)

    def __len__(self) -> int:
        return len(self._tracks)

    def get(self, series: bytes) -> AnyTrack | None:
        """The track of a series; None for a new series."""
        return self._tracks.get(series)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for a new series."""
        return len(self._tracks) >= self._most or self._weight >= self._most * _WEIGHT

    def set(self, series: bytes, track: AnyTrack, now_ns: int) -> None:
        """Keeps the newest track of a series. A series that is known may grow beyond the limits."""
        if former := self._tracks.get(series):
            self._weight -= former.weight
            self._tracks.move_to_end(series)
        self._tracks[series] = track
        self._weight += track.weight
        track.updated_ns = now_ns

    def end(self, series: bytes) -> None:
        """Forgets a series."""
        if track := self._tracks.pop(series, None):
            self._weight -= track.weight

    def expire(self, now_ns: int) -> None:
        """Forgets the series without a point for `idle_timeout`."""
        while self._tracks:
            series, track = next(iter(self._tracks.items()))
            if now_ns - track.updated_ns <= self._idle_ns:
                return
            self.end(series)
