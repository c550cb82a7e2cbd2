"""Time series on the wire, samples and native histograms, and the table of fields that they share in a request.

Field numbers are those of prompb/types.proto in github.com/prometheus/prometheus.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from otel_zernel.protobuf import delimited, encode_field, varint
from otel_zernel_exporters.prometheusremotewrite.protocol.histograms import CUSTOM_BUCKETS
from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    Entry,
    Labels,
    WrittenExemplar,
    WrittenHistogram,
    WrittenSeries,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.wire import double, double_field, packed, zigzag
from otel_zernel_libraries.prometheus.histograms.native import Side

_SAMPLE = 2  # of TimeSeries
_VALUE_KEY = b"\x09"  # Sample.value = 1, a double
_TIME_KEY = b"\x10"  # Sample.timestamp = 2
_RESET_YES = 1  # Histogram.ResetHint


def sample_head(start_ms: int, time_size: int) -> bytes:
    """The field of a sample in a time series, up to its value. `time_size` is the length of `sample_tail`."""
    start = encode_field(3, start_ms) if start_ms else b""
    return varint(_SAMPLE << 3 | 2) + varint(len(start) + 9 + time_size) + start + _VALUE_KEY


def sample_tail(time_ms: int) -> bytes:
    """The field of a sample after its value: the time."""
    return _TIME_KEY + varint(time_ms)


def sample_message(time_ms: int, value: float, start_ms: int) -> bytes:
    """A sample as a field of a time series."""
    tail = sample_tail(time_ms)
    return sample_head(start_ms, len(tail)) + double(value) + tail


def histogram_message(time_ms: int, value: WrittenHistogram, start_ms: int) -> bytes:
    """A native histogram, without the key of its field."""
    parts = [
        encode_field(1, value.count),
        double_field(3, value.total),
        varint(4 << 3) + zigzag(value.schema or 0),
        double_field(5, value.zero_threshold),
        encode_field(6, value.zero_count),
        *_side(value.negative, 8),
        *_side(value.positive, 11),
        encode_field(14, _RESET_YES) if value.has_reset else b"",
        encode_field(15, time_ms),
        encode_field(17, start_ms) if start_ms else b"",
    ]
    if value.schema == CUSTOM_BUCKETS:
        parts.append(packed(16, map(double, value.bounds.values)))
    return b"".join(parts)


def _side(side: Side, spans: int) -> Iterable[bytes]:
    """The fields of the buckets on one side of zero: the spans have the number `spans`, and the deltas the next one."""
    for offset, length in side.spans:
        yield delimited(spans, b"\x08" + zigzag(offset) + encode_field(2, length))
    yield packed(spans + 1, map(zigzag, side.deltas))


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
            self._time_ms = time_ms
            self._tail = sample_tail(time_ms)
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
