"""Histograms, native histograms, summaries and exemplars as OTLP."""

import math
import struct
from collections.abc import Iterable, Sequence

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, ExponentialHistogramDataPoint

from otel_zernel.otlp.points import key_values
from otel_zernel.protobuf import delimited
from otel_zernel_receivers.prometheus.pages.page import NativeHistogram, PageExemplar
from otel_zernel_receivers.prometheus.points.numbers import Floats

_HEAD = struct.Struct("<BQBQBQ")  # start (2), time (3) and count (4) as fixed64
_SUM = struct.Struct("<Bd")  # sum (5) as double
_QUANTILE = struct.Struct("<BdBd")
_EXEMPLARS_OF_NUMBERS, _EXEMPLARS_OF_HISTOGRAMS = 5, 8
_TRACE, _SPAN = 16, 8
"""Bytes of the ids."""


class BucketCounts:
    """The buckets of several histograms. numpy's calls cost more than the work for a single one."""

    def __init__(self, positions: Sequence[Sequence[int]]) -> None:
        """`positions` of the samples of each histogram on the page: its buckets, ascending, and the count of all."""
        self._at = np.array([one for of_one in positions for one in of_one], np.intp)
        self._ends = np.cumsum([0, *map(len, positions)], dtype=np.intp)

    def encode(self, values: Floats) -> list[bytes | None]:
        """The packed counts of each histogram, for the values of the page. None where cumulative counts decrease."""
        if not len(self._at):
            return []
        starts = self._ends[:-1]
        cumulative = np.rint(values[self._at])
        with np.errstate(invalid="ignore"):
            counts = np.diff(cumulative, prepend=0.0)
            counts[starts] = cumulative[starts]
            is_good = np.minimum.reduceat((counts >= 0) & (counts < 2.0**63), starts)
            packed = np.where(np.isfinite(counts), counts, 0).astype("<u8").tobytes()
        ends = (self._ends * 8).tolist()
        return [
            delimited(6, packed[start:end]) if good else None
            for start, end, good in zip(ends, ends[1:], is_good.tolist(), strict=False)
        ]


def encode_bounds(bounds: Iterable[float]) -> bytes:
    """The explicit bounds, packed."""
    packed = np.fromiter(bounds, np.float64).tobytes()
    return delimited(7, packed) if packed else b""


def encode_histogram(
    attributes: bytes, buckets: bytes, count: int, total: float | None, time_ns: int, start_ns: int, exemplars: bytes
) -> bytes:
    """One of the `data_points` of a histogram. `buckets` are the counts and the bounds."""
    head = _HEAD.pack(0x11, start_ns, 0x19, time_ns, 0x21, count)
    return delimited(1, attributes + head + _encoded_sum(total) + buckets + exemplars)


def _encoded_sum(total: float | None) -> bytes:
    return b"" if total is None else _SUM.pack(0x29, total)


def encode_summary(
    attributes: bytes,
    quantiles: Iterable[tuple[float, float]],
    count: int,
    total: float,
    time_ns: int,
    start_ns: int,
) -> bytes:
    """One of the `data_points` of a summary. `quantiles` are pairs of quantile and value."""
    values = b"".join(delimited(6, _QUANTILE.pack(0x09, quantile, 0x11, value)) for quantile, value in quantiles)
    head = _HEAD.pack(0x11, start_ns, 0x19, time_ns, 0x21, count)
    return delimited(1, attributes + head + _SUM.pack(0x29, total) + values)


def encode_native(attributes: bytes, native: NativeHistogram, time_ns: int, start_ns: int) -> bytes:
    """One of the `data_points` of an exponential histogram."""
    point = ExponentialHistogramDataPoint(
        start_time_unix_nano=start_ns,
        time_unix_nano=time_ns,
        count=native.count,
        scale=native.schema,
        zero_count=native.zero_count,
        zero_threshold=native.zero_threshold,
        exemplars=[_exemplar(one, time_ns) for one in native.exemplars],
    )
    if not math.isnan(native.sum):
        point.sum = native.sum
    for side, (offset, counts) in ((point.positive, native.positive), (point.negative, native.negative)):
        if counts:
            side.offset = offset
            side.bucket_counts.extend(counts)
    return delimited(1, attributes + point.SerializeToString())


def encode_exemplars(exemplars: Iterable[PageExemplar], time_ns: int, *, of_histogram: bool) -> bytes:
    """The exemplars as fields of a point. One without a time gets that of the point."""
    field = _EXEMPLARS_OF_HISTOGRAMS if of_histogram else _EXEMPLARS_OF_NUMBERS
    return b"".join(delimited(field, _exemplar(one, time_ns).SerializeToString()) for one in exemplars)


def _exemplar(exemplar: PageExemplar, time_ns: int) -> Exemplar:
    labels = dict(exemplar.labels)
    return Exemplar(
        as_double=exemplar.value,
        time_unix_nano=time_ns if exemplar.time_ns is None else exemplar.time_ns,
        trace_id=_pop_id(labels, "trace_id", _TRACE),
        span_id=_pop_id(labels, "span_id", _SPAN),
        filtered_attributes=key_values(labels),
    )


def _pop_id(labels: dict[str, str], name: str, size: int) -> bytes:
    """An id in hexadecimal digits. A label of another form stays a label."""
    try:
        id_ = bytes.fromhex(labels.get(name, ""))
    except ValueError:
        return b""
    if len(id_) != size:
        return b""
    del labels[name]
    return id_
