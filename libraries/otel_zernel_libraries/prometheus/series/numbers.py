"""Series of one number: gauges and sums."""

from collections.abc import Iterator
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, NumberDataPoint

from otel_zernel_libraries.prometheus.histograms import BucketLayout
from otel_zernel_libraries.prometheus.labels import sample_prefix
from otel_zernel_libraries.prometheus.series.exemplars import copied, exemplar_value
from otel_zernel_libraries.prometheus.series.exposed import ExposedSeries, MalformedPoint, Sample, SeriesByKey


class NumberSeries(ExposedSeries):
    """A gauge, or a sum that is not monotonic."""

    __slots__ = ("exemplar", "prefix", "value")
    prefix: str
    """Its line up to the value."""

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.value: float = 0
        self.exemplar: Exemplar | None = None

    def __getattr__(self, name: str) -> Any:
        """Makes `prefix` at its first use: scrapers of the protobuf format need no text, and it takes much memory."""
        if name != "prefix":
            raise AttributeError(name)
        self.prefix = prefix = sample_prefix(self.name, self.labels)
        return prefix

    def update(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int  # an unset field reads as 0
        self.value = self.value + value if delta else value

    @property
    def has_exemplars(self) -> bool:
        return self.exemplar is not None

    def samples(self, *, openmetrics: bool) -> Iterator[Sample]:
        yield self.prefix, self.value, self.exemplar


class CounterSeries(NumberSeries):
    """A monotonic sum."""

    __slots__ = ("start",)

    def __init__(self, name: str, labels: str, identity: bytes, siblings: SeriesByKey, layout: BucketLayout) -> None:
        super().__init__(name, labels, identity, siblings, layout)
        self.start = 0
        """The time since which it counts, in ns since 1970; 0 if it is unknown."""

    def update(self, point: NumberDataPoint, delta: bool) -> None:
        value = point.as_double or point.as_int
        if not value >= 0:
            raise MalformedPoint
        start = point.start_time_unix_nano
        if start != self.start and not (delta and self.start):
            self.start, self.encoded = start, None
        self.value = self.value + value if delta else value
        if point.exemplars:
            self.exemplar = copied(max(point.exemplars, key=exemplar_value))
