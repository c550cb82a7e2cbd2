"""Time series on the wire, and the table of fields that they share in a request."""

from abc import ABC, abstractmethod
from typing import ClassVar

from otel_zernel.protobuf import delimited, encode_field, varint
from otel_zernel_exporters.prometheusremotewrite.protocol.messages import (
    histogram_message,
    sample_head,
    sample_message,
    sample_tail,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    Entry,
    Labels,
    WrittenExemplar,
    WrittenHistogram,
    WrittenSeries,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.wire import double, double_field

_TIME_SIZE = 7
"""Bytes of the field with a time between 2004 and 2109, in ms."""


class Table(ABC):
    """Encodes time series. Symbols or metadata that they need in the same request become `fields`.

    A series keeps the bytes of its time series up to the value of its only sample, as long as `owner` is the same.
    """

    time_series: ClassVar[int]
    """The number of a time series in the request."""
    histogram: ClassVar[int]
    """The numbers of a histogram and of an exemplar in a time series."""
    exemplar: ClassVar[int]
    has_starts: ClassVar[bool]
    """Whether samples have the start of their counting."""

    def __init__(self) -> None:
        self.fields: list[bytes] = []
        self.size = 0
        """The bytes of `fields`."""
        self.owner: object = self
        self._time_ms = -1
        self._tail = b""

    @abstractmethod
    def is_worn(self, series: int) -> bool:
        """Whether the next request needs a new table, after a request with so many series."""

    @abstractmethod
    def head(self, series: WrittenSeries) -> bytes:
        """The labels of a series and, in 2.0, its metadata: the fields of a time series before its samples."""

    @abstractmethod
    def labels(self, labels: Labels) -> bytes:
        """The labels of a time series or of an exemplar."""

    def add(self, field: bytes) -> None:
        """Adds a field."""
        self.fields.append(field)
        self.size += len(field)

    def encode(self, entry: Entry) -> bytes:
        """A time series. The hot path: one sample without exemplars of a known series."""
        series, samples = entry
        time_ms, value, start_ms, _, exemplars = samples[0]
        if time_ms != self._time_ms:
            self._time_ms, self._tail = time_ms, sample_tail(time_ms)
        tail = self._tail
        is_plain = len(samples) == 1 and not exemplars and not isinstance(value, WrittenHistogram)
        if not is_plain or len(tail) != _TIME_SIZE:
            return self._whole(entry)
        if not self.has_starts:
            start_ms = 0
        if series.prefix_owner is not self.owner or series.prefix_start != start_ms:
            self._keep_prefix(series, start_ms)
        return series.prefix + double(value) + tail

    def _keep_prefix(self, series: WrittenSeries, start_ms: int) -> None:
        head, sample = self.head(series), sample_head(start_ms, _TIME_SIZE)
        size = len(head) + len(sample) + 8 + _TIME_SIZE
        series.prefix = varint(self.time_series << 3 | 2) + varint(size) + head + sample
        series.prefix_owner, series.prefix_start = self.owner, start_ms

    def _whole(self, entry: Entry) -> bytes:
        series, samples = entry
        parts, exemplars = [self.head(series)], list[WrittenExemplar]()
        for time_ms, value, start_ms, _, more in samples:
            start_ms = start_ms if self.has_starts else 0
            if isinstance(value, WrittenHistogram):
                parts.append(delimited(self.histogram, histogram_message(time_ms, value, start_ms)))
            else:
                parts.append(sample_message(time_ms, value, start_ms))
            exemplars += more
        parts += map(self._exemplar, sorted(exemplars))
        return delimited(self.time_series, b"".join(parts))

    def _exemplar(self, exemplar: WrittenExemplar) -> bytes:
        value = double_field(2, exemplar.value) + encode_field(3, exemplar.time_ms)
        return delimited(self.exemplar, self.labels(exemplar.labels) + value)
