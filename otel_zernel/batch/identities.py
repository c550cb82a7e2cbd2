"""The targets that encoded metrics belong to: what Prometheus calls job and instance."""

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.errors import DecodeError
from otel_zernel.protobuf import read_field

IDENTIFYING: Final = frozenset({"service.namespace", "service.name", "service.instance.id"})
"""The resource attributes that identify a target."""
_RESOURCE_METRICS: Final = MetricsData.RESOURCE_METRICS_FIELD_NUMBER << 3 | 2
_RESOURCE: Final = ResourceMetrics.RESOURCE_FIELD_NUMBER << 3 | 2
_LONGEST_CACHED: Final = 4096
"""Bytes. Strangers' resources may have megabytes."""

Identity = bytes
"""The identifying attributes of a resource, encoded. Empty without any."""


def identities_of(metrics: bytes) -> Iterator[Identity]:
    """The target of each resource in encoded metrics. Costs 3 to 8 us for each resource and looks at no point."""
    with suppress(DecodeError):  # the exporter refuses them
        yield from map(_identity, _resources(metrics))


def _resources(metrics: bytes) -> Iterator[bytes]:
    """The encoded resources. Metrics without a resource have an empty one."""
    position, end = 0, len(metrics)
    while position < end:
        key, inner, position = read_field(metrics, position, end)
        if key != _RESOURCE_METRICS:
            continue
        field = 0
        while inner < position and field != _RESOURCE:  # encoders write the resource first
            field, content, inner = read_field(metrics, inner, position)
        yield metrics[content:inner] if field == _RESOURCE else b""


def _identity(resource: bytes) -> Identity:
    return _cached(resource) if len(resource) <= _LONGEST_CACHED else _read(resource)


@lru_cache(maxsize=4096)
def _cached(resource: bytes) -> Identity:
    return _read(resource)


def _read(resource: bytes) -> Identity:
    try:
        attributes = Resource.FromString(resource).attributes
    except ProtobufDecodeError:
        return b""
    kept = sorted((pair for pair in attributes if pair.key in IDENTIFYING), key=lambda pair: pair.key)
    return Resource(attributes=kept).SerializeToString()
