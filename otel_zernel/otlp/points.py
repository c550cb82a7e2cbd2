"""OTLP number points, encoded from templates.

Building a point with protobuf costs 5 us, most of it for attributes that never change. So what does not change is
encoded once: a `Series` holds its attributes' bytes, and `KnownSeries` a whole message with holes for times and values,
which numpy fills. Field numbers are those of opentelemetry/proto/metrics/v1/metrics.proto.
"""

import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from otel_zernel import __version__
from otel_zernel.batch import Batch

AttributeValue = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, AttributeValue]

# Time and value lie in every point as fixed 64-bit fields: start (2), time (3), as_double (4), each behind its tag.
_HOLES = np.dtype(
    [("start_tag", "u1"), ("start", "<u8"), ("time_tag", "u1"), ("time", "<u8"), ("value_tag", "u1"), ("value", "<f8")]
)
_TAGS = (0x11, 0x19, 0x21)


# The field of a metric that holds the points, and what stands behind them there: temporality (2), is_monotonic (3).
_CUMULATIVE = bytes((2 << 3, AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE))
_DATA = {"gauge": (5, b""), "sum": (7, _CUMULATIVE + bytes((3 << 3, 1))), "up_down": (7, _CUMULATIVE)}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a metric is: an OpenTelemetry name, a UCUM unit, and how its points add up.

    `sum` is monotonic and cumulative, `up_down` cumulative and not monotonic.
    """

    name: str
    unit: str = ""
    kind: Literal["gauge", "sum", "up_down"] = "gauge"
    description: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """The instrumentation scope: by convention the package that makes the points."""

    name: str
    version: str = __version__


@dataclass(frozen=True, slots=True)
class Series:
    """One stream of points: where it comes from, what it is, and its own attributes, each encoded once."""

    resource: bytes
    """An encoded `Resource`; see `encode_resource`."""
    scope: Scope
    descriptor: Descriptor
    attributes: bytes = b""
    """Encoded attributes of a point; see `encode_point_attributes`."""


def any_value(value: AttributeValue) -> AnyValue:
    """The value as OTLP's `AnyValue`."""
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, str):
        return AnyValue(string_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, float):
        return AnyValue(double_value=value)
    return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))


def key_values(attributes: Attributes) -> list[KeyValue]:
    """The attributes as OTLP's `KeyValue` messages."""
    return [KeyValue(key=key, value=any_value(value)) for key, value in attributes.items()]


def delimited(number: int, payload: bytes) -> bytes:
    """The payload as the length-delimited field `number` of the message around it."""
    size = len(payload)
    key = number << 3 | 2
    if size < 0x80:
        return bytes((key, size)) + payload
    if size < 0x4000:  # most of what is longer; this function decides how fast metrics are encoded
        return bytes((key, size & 0x7F | 0x80, size >> 7)) + payload
    return bytes((key,)) + _varint(size) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_resource(attributes: Attributes) -> bytes:
    """An encoded `Resource` with these attributes."""
    return b"".join(delimited(1, pair.SerializeToString()) for pair in key_values(attributes))


def encode_point_attributes(attributes: Attributes) -> bytes:
    """The attributes as fields of a number point, ready to be spliced in."""
    return b"".join(delimited(7, pair.SerializeToString()) for pair in key_values(attributes))


def encode_number_points(
    attributes: bytes, times: NDArray[np.uint64], values: NDArray[np.float64], start_ns: int = 0
) -> bytes:
    """The `data_points` of one series: `times` in ns and `values`, of one shape (n,)."""
    head = number_point_head(attributes)
    return b"".join(head + tail for tail in number_point_tails(times, values, start_ns))


def number_point_head(attributes: bytes) -> bytes:
    """What all points of a series begin with. A point is its head and a tail."""
    return delimited(1, attributes + bytes(_HOLES.itemsize))[: -_HOLES.itemsize]


def number_point_tails(times: NDArray[np.uint64], values: NDArray[np.float64], start_ns: int = 0) -> list[bytes]:
    """What points end with: `times` in ns and `values`, of one shape (n,), of any mix of series."""
    holes = np.zeros(len(values), _HOLES)
    _fill(holes, times, values, start_ns)
    tails: list[bytes] = holes.view(f"V{_HOLES.itemsize}").tolist()
    return tails


def _fill(
    holes: NDArray[np.void],
    times: NDArray[np.uint64] | int,
    values: NDArray[np.float64],
    start_ns: NDArray[np.uint64] | int,
) -> None:
    holes["start_tag"], holes["time_tag"], holes["value_tag"] = _TAGS
    holes["start"], holes["time"], holes["value"] = start_ns, times, values


def encode_metric(descriptor: Descriptor, data_points: bytes) -> bytes:
    """A metric of a `ScopeMetrics`, around its encoded points."""
    _, trailer = _DATA[descriptor.kind]
    return _metric_prefix(descriptor, len(data_points)) + data_points + trailer


@lru_cache(maxsize=8192)
def _metric_prefix(descriptor: Descriptor, size: int) -> bytes:
    """What stands before `size` bytes of points: of one metric there are few sizes."""
    number, trailer = _DATA[descriptor.kind]
    texts = (descriptor.name, descriptor.description, descriptor.unit)
    header = b"".join(delimited(number, text.encode()) for number, text in enumerate(texts, 1) if text or number == 1)
    data = delimited(number, bytes(size) + trailer)
    metric = delimited(2, header + data)
    return metric[: len(metric) - size - len(trailer)]


def encode_resource_metrics(resource: bytes, scope: Scope, metrics: Iterable[bytes]) -> bytes:
    """A `ResourceMetrics` of a `MetricsData`, around its encoded metrics."""
    return delimited(1, delimited(1, resource) + delimited(2, _scope_header(scope) + b"".join(metrics)))


@lru_cache(maxsize=128)
def _scope_header(scope: Scope) -> bytes:
    return delimited(1, InstrumentationScope(name=scope.name, version=scope.version).SerializeToString())


class KnownSeries:
    """A scrape whose series are known: one encoded `MetricsData` with holes for the times and the values.

    Series of one resource, scope and descriptor should stand together, else their headers repeat (which is valid, but
    longer). Build it anew when the set of series changes.
    """

    def __init__(self, series: Sequence[Series]) -> None:
        marker = secrets.token_bytes(_HOLES.itemsize)
        message = b"".join(_encode_series(series, marker))
        starts = [found.start() for found in re.finditer(re.escape(marker), message)]
        self._message = np.frombuffer(bytearray(message), np.uint8)
        self._at = np.array(starts, np.intp).reshape(-1, 1) + np.arange(_HOLES.itemsize)
        self._holes = np.zeros(len(series), _HOLES)

    def encode(self, values: NDArray[np.float64], time_ns: int, start_ns: NDArray[np.uint64] | int = 0) -> bytes:
        """The scrape with `values`, shape (n,), in the order of the series, all of one time; `start_ns` is that of all
        of them, or each one's, shape (n,)."""
        _fill(self._holes, time_ns, values, start_ns)
        self._message[self._at] = self._holes.view(np.uint8).reshape(-1, _HOLES.itemsize)
        return self._message.tobytes()

    def batch(
        self,
        values: Sequence[float] | NDArray[np.float64],
        time_ns: int,
        start_ns: NDArray[np.uint64] | int = 0,
    ) -> Batch:
        """The same as a batch."""
        encoded = self.encode(np.asarray(values, np.float64), time_ns, start_ns)
        return Batch.encoded(metrics=encoded, point_count=len(self._holes))


def _encode_series(series: Sequence[Series], hole: bytes) -> Iterator[bytes]:
    for (resource, scope), of_scope in groupby(series, lambda one: (one.resource, one.scope)):
        metrics = [
            encode_metric(descriptor, b"".join(delimited(1, one.attributes + hole) for one in group))
            for descriptor, group in groupby(of_scope, lambda one: one.descriptor)
        ]
        yield encode_resource_metrics(resource, scope, metrics)
