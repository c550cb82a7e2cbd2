"""The metrics of this receiver and its histogram points, as OTLP."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import starmap
from typing import Literal

from otel_zernel.otlp import points as otlp
from otel_zernel_libraries.histograms.hdr import (
    Floats,
    HdrLayout,
    Ints,
    encode_buckets,
    encode_histogram_point,
    hdr_buckets,
)
from otel_zernel_libraries.job_environment import host_name
from otel_zernel_receivers.ebpf.tables.series import SeriesReading

SCOPE = otlp.Scope("otel_zernel_receivers.ebpf")
_NS = 1e9  # nanoseconds to the second


def metric(name: str, unit: str, kind: Literal["gauge", "sum", "histogram"], description: str) -> otlp.Descriptor:
    """A metric of this receiver: its sums and histograms are deltas, and histograms have bounds near their values."""
    return otlp.Descriptor(name, unit, kind, description, "delta", moving_bounds=kind == "histogram")


def encode_histogram_points(
    attributes: Iterable[bytes], readings: Sequence[SeriesReading], layout: HdrLayout, period: otlp.Period
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


def _encode(attributes: bytes, reading: SeriesReading, bounds: Floats, counts: Ints, period: otlp.Period) -> bytes:
    return encode_histogram_point(
        attributes,
        period,
        encode_buckets(bounds, counts),
        int(counts.sum()),
        reading.sum_ns / _NS,
        highest=None if reading.highest_ns is None else reading.highest_ns / _NS,
    )


def encode_resources(points: Mapping[bytes, Mapping[otlp.Descriptor, list[bytes]]]) -> bytes:
    """Encoded points, by encoded resource and metric, as `MetricsData`."""
    return b"".join(starmap(_encode_resource_points, points.items()))


def _encode_resource_points(resource: bytes, points: Mapping[otlp.Descriptor, list[bytes]]) -> bytes:
    metrics = [otlp.encode_metric(family, b"".join(of_family)) for family, of_family in points.items()]
    return otlp.encode_resource_metrics(resource, SCOPE, metrics)


def process_resource(attributes: otlp.Attributes) -> bytes:
    """The encoded resource of a process, which its spans and log records have, too."""
    return _encode_attributes(tuple(attributes.items()))


@lru_cache(maxsize=512)
def service_resource(service: str) -> bytes:
    """The encoded resource of points that are about a service on this host, and not about one process."""
    host = host_name()
    return otlp.encode_resource({"host.name": host, "service.name": service, "service.instance.id": host})


@lru_cache(maxsize=1024)
def _encode_attributes(attributes: tuple[tuple[str, otlp.AttributeValue], ...]) -> bytes:
    return otlp.encode_resource(dict(attributes))
