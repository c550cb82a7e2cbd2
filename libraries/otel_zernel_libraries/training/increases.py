"""The new durations of each histogram point: of a cumulative one those since its series' previous point."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final

from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel.otlp.points import AttributeValue
from otel_zernel_libraries.histograms.amounts import MalformedAmount, NotComparable
from otel_zernel_libraries.histograms.temporality.track import Track, amount_of
from otel_zernel_libraries.training.durations import Counts, HistogramPoint, counts_of

Attributes = Mapping[str, AttributeValue]
_MOST_SERIES: Final = 20_000
"""Cumulative series whose last point is kept: about 1.5 KB each."""


class DurationIncreases:
    """Remembers the last point of each cumulative series. Times are monotonic, in s."""

    def __init__(self, expiration: float, refused: Callable[[], None]) -> None:
        """`expiration` is the time (s) without a point after which a series leaves. `refused` is called for each point
        of a series that has no room."""
        self._expiration = expiration
        self._refused = refused
        self._tracks: OrderedDict[bytes, tuple[Track, float]] = OrderedDict()
        """By series: its newest point, and when it arrived, the oldest first."""

    def counts(self, point: HistogramPoint, temporality: int, series_of: Callable[[], bytes], now: float) -> Counts:
        """The new durations of a point. A series' first point has none: its values may be those of days.

        The counts are subtracted before buckets become values: the middle of a bucket moves with its bounds.
        """
        if temporality != AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE:
            return counts_of(point)
        try:
            amount = amount_of(point)
        except MalformedAmount:
            return Counts()
        series = series_of()
        previous, _ = self._tracks.get(series, (None, now))
        if previous is None and len(self._tracks) >= _MOST_SERIES:
            self._refused()
            return Counts()
        if previous and point.time_unix_nano < previous.end_ns and not previous.is_set_back(round(now * 1e9)):
            return Counts()  # a late point
        self._tracks[series] = Track(amount, point.start_time_unix_nano, point.time_unix_nano), now
        self._tracks.move_to_end(series)
        if previous is None:
            return Counts()
        try:
            increase = previous.increase(amount, point.start_time_unix_nano)
        except NotComparable:
            return Counts()
        gained = type(point)()
        (amount if increase is None else increase).write(gained)
        return counts_of(gained)

    def end(self, series: bytes) -> None:
        """Forgets a series that has ended: its next point is a first one."""
        self._tracks.pop(series, None)

    def sweep(self, now: float) -> None:
        """Forgets the series without a point for `expiration`: their process has ended."""
        while self._tracks and now - next(iter(self._tracks.values()))[1] > self._expiration:
            self._tracks.popitem(last=False)


def series_of(metric: str, resource: Attributes, attributes: Attributes) -> bytes:
    """Names a series, in 16 bytes."""
    parts = metric, sorted(resource.items()), sorted(attributes.items())
    return blake2b(repr(parts).encode("utf-8", "replace"), digest_size=16).digest()
