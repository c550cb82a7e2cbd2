"""The series that a conversion remembers, the least recently updated first."""

from collections import OrderedDict
from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated, Any, Generic, Literal, Protocol, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from pydantic import Field

from otel_zernel.protobuf import delimited
from otel_zernel.types import PositiveDuration, Section


class StreamIdentity:
    """A metric of a resource and a scope. Its points are series by their attributes."""

    __slots__ = ("_digest",)

    def __init__(self, resource: bytes, scope: bytes, metric: Any, kind: str, *, monotonic: bool) -> None:
        """`resource` and `scope` are encoded messages."""
        parts = (resource, scope, metric.name.encode(), metric.unit.encode(), kind.encode(), bytes((monotonic,)))
        self._digest = blake2b(b"".join(delimited(1, part) for part in parts), digest_size=16)

    @property
    def digest(self) -> bytes:
        """The identity of the metric, in that resource and scope. It is that of no series."""
        metric = self._digest.copy()
        metric.update(delimited(3, b""))
        return metric.digest()

    def of(self, attributes: Iterable[KeyValue]) -> bytes:
        """The identity of the series with these attributes, in whatever order."""
        series = self._digest.copy()
        for pair in sorted(pair.SerializeToString() for pair in attributes):
            series.update(delimited(2, pair))
        return series.digest()


Temporality = Literal["cumulative", "delta", "as_is"]
"""The temporality of the result. `as_is` converts nothing."""


class SeriesMemoryConfig(Section):
    """How many series a conversion remembers, and for how long."""

    max_series: Annotated[int, Field(ge=1)] = 100_000
    """The maximum number of converted series. Points of further series are dropped and counted."""
    idle_timeout: PositiveDuration = 3600.0
    """Seconds without a point after which a series is forgotten. If it returns, it starts again at zero."""


MovingBounds = Literal["exponential", "fixed", "as_is"]
"""The form of histograms whose bounds differ from point to point: exponential histograms, the fixed bounds of the
metric's unit, or the bounds as they are, which few backends add up rightly."""


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
