"""What is remembered of histograms with explicit bounds: whether the bounds move, and the total in their new form."""

from hashlib import blake2b

from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint

from otel_zernel_libraries.histograms.amounts import Amount
from otel_zernel_libraries.histograms.explicit import ExplicitAmount, bounds_of
from otel_zernel_libraries.histograms.temporality.track import Track


class MovingMetric:
    """Stands for a metric whose bounds have moved."""

    __slots__ = ("updated_ns", "weight")

    def __init__(self) -> None:
        self.weight, self.updated_ns = 1, 0


class WatchedSeries:
    """The newest point of a series whose bounds have not moved so far."""

    __slots__ = ("_bounds", "_encoded", "_start_ns", "end_ns", "updated_ns", "weight")

    def __init__(self, point: HistogramDataPoint, *, is_cumulative: bool) -> None:
        """Raises `MalformedAmount`."""
        self._bounds = blake2b(bounds_of(point), digest_size=16).digest()
        self._start_ns, self.end_ns = point.start_time_unix_nano, point.time_unix_nano
        self._encoded = point.SerializeToString() if is_cumulative else b""
        """Only a cumulative series needs its counts again."""
        self.weight, self.updated_ns = 1 + len(self._encoded) // 8, 0

    def moves_to(self, later: "WatchedSeries") -> bool:
        """Whether the bounds of the next point differ, and that is not because its sender began again."""
        if self._bounds == later._bounds:
            return False
        if not self._encoded or not 0 < self._start_ns < later._start_ns:
            return True
        return self.track().increase(later.track().amount, later._start_ns) is not None

    def track(self) -> Track:
        """The amount of the point, of a cumulative series."""
        point = HistogramDataPoint.FromString(self._encoded)
        return Track(ExplicitAmount.of(point, monotonic=True), self._start_ns, self.end_ns)


class SettledTrack(Track):
    """A cumulative series whose bounds move, and its total in the new form."""

    __slots__ = ("total", "total_start_ns")

    def __init__(self, amount: Amount, start_ns: int, end_ns: int, total: Amount, total_start_ns: int) -> None:
        super().__init__(amount, start_ns, end_ns)
        self.weight += total.weight
        self.total = total
        self.total_start_ns = total_start_ns
