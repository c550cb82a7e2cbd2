"""The messages that both versions have: samples and native histograms.

Field numbers are those of prompb/types.proto in github.com/prometheus/prometheus.
"""

from collections.abc import Iterable

from otel_zernel.protobuf import delimited, encode_field, varint
from otel_zernel_exporters.prometheusremotewrite.protocol.histograms import CUSTOM_BUCKETS
from otel_zernel_exporters.prometheusremotewrite.protocol.series import WrittenHistogram
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
