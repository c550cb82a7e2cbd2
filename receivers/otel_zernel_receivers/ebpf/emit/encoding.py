"""The metrics of this receiver and its histogram points, as OTLP."""

from collections.abc import Iterable, Sequence
from typing import Literal

from otel_zernel.otlp.histograms import Floats, HdrLayout, Ints, encode_buckets, encode_histogram_point, hdr_buckets
from otel_zernel.otlp.points import Descriptor, Period
from otel_zernel_receivers.ebpf.tables.series import SeriesReading

_NS = 1e9  # nanoseconds to the second


def metric(name: str, unit: str, kind: Literal["gauge", "sum", "histogram"], description: str) -> Descriptor:
    """A metric of this receiver: its sums and histograms are deltas."""
    return Descriptor(name, unit, kind, description, "delta")


def encode_histogram_points(
    attributes: Iterable[bytes], readings: Sequence[SeriesReading], layout: HdrLayout, period: Period
) -> list[bytes]:
    """The `data_points` of histograms in seconds, one for each reading. Every reading must have counted a value.

    `attributes` are encoded for `HISTOGRAM_ATTRIBUTES`. The bounds are those of the used HDR counters.
    """
    indexes, counts = [reading.index for reading in readings], [reading.counts for reading in readings]
    return [
        _encode(attributes_of_point, reading, bounds, in_bucket, period)
        for attributes_of_point, reading, (bounds, in_bucket) in zip(
            attributes, readings, hdr_buckets(layout, indexes, counts, _NS), strict=True
        )
    ]


def _encode(attributes: bytes, reading: SeriesReading, bounds: Floats, counts: Ints, period: Period) -> bytes:
    return encode_histogram_point(
        attributes,
        period,
        encode_buckets(bounds, counts),
        int(counts.sum()),
        reading.sum_ns / _NS,
        highest=None if reading.highest_ns is None else reading.highest_ns / _NS,
    )
