"""Identifies series by a digest of 16 bytes, so that long attributes take no memory."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel.otlp.points import delimited


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
