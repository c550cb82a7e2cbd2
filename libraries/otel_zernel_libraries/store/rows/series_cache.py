"""From resources, scopes, metrics and attributes of OTLP to the series of the store, with a bounded cache."""

import json
import math
import struct
from base64 import b64encode
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Generic, Literal, TypeVar

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_libraries.store.rows.points import Row, has_only_attributes

SeriesType = Literal["gauge", "sum", "histogram", "exponential_histogram", "summary"]


@dataclass(slots=True, eq=False)
class StoredResource:
    """A resource with its schema URL. `id` is None until the store knows it."""

    fingerprint: bytes
    attributes: str
    """JSON, as all `attributes` here."""
    schema_url: str
    encoded: bytes
    """The exact `ResourceMetrics` message of OTLP, without metrics."""
    id: int | None = None

    def row(self) -> Row:
        """The columns of `resources`, without the id."""
        return (self.fingerprint, self.attributes, self.schema_url, self.encoded)


@dataclass(slots=True, eq=False)
class StoredScope:
    """An instrumentation scope with its schema URL."""

    fingerprint: bytes
    name: str
    version: str
    attributes: str
    schema_url: str
    encoded: bytes
    """The exact `ScopeMetrics` message, without metrics."""
    id: int | None = None

    def row(self) -> Row:
        """The columns of `scopes`, without the id."""
        return (self.fingerprint, self.name, self.version, self.attributes, self.schema_url, self.encoded)


@dataclass(slots=True, frozen=True)
class SeriesDetails:
    """The description of a series."""

    resource: StoredResource
    scope: StoredScope
    metric: str
    description: str
    """Not part of the identity: that of the first batch stays."""
    unit: str
    type: SeriesType
    temporality: int | None
    """The number of OTLP's enumeration; None for gauges and summaries."""
    monotonic: bool | None
    """For sums only."""
    attributes: str
    encoded: bytes
    """The exact `Metric` message, with one point that has only the attributes of the series."""

    def row(self, fingerprint: bytes) -> Row:
        """The columns of `series`, without the id. Its resource and its scope have ids."""
        return (
            fingerprint,
            self.resource.id,
            self.scope.id,
            self.metric,
            self.description,
            self.unit,
            self.type,
            self.temporality,
            self.monotonic,
            self.attributes,
            self.encoded,
        )


@dataclass(slots=True, eq=False)
class StoredSeries:
    """One series. The details are needed only until the store has given it an id."""

    fingerprint: bytes
    details: SeriesDetails | None
    id: int | None = None

    def __repr__(self) -> str:
        return f"<series {self.id or self.fingerprint.hex()}>"


def json_attributes(attributes: Iterable[KeyValue]) -> str:
    """A JSON object. Bytes are base64, NaN and the infinities are text, and the first of equal keys counts."""
    return json.dumps(plain_attributes(attributes), ensure_ascii=False, separators=(",", ":"))


def json_text(text: str) -> str:
    """The text without NUL, which PostgreSQL stores nowhere."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


def plain_attributes(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """The same as values of Python."""
    values: dict[str, Any] = {}
    for pair in attributes:
        values.setdefault(json_text(pair.key), _plain(pair.value))
    return values


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return json_text(value.string_value)
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return plain_attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return b64encode(value.bytes_value).decode()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value.double_value, "NaN")
    return getattr(value, kind) if kind else None


FINGERPRINT_BYTES = 16
_LENGTH = struct.Struct("<I")


def fingerprint(*parts: bytes) -> bytes:
    """The hash of the parts. Each is preceded by its length, so that no two lists of parts look alike."""
    whole = blake2b(digest_size=FINGERPRINT_BYTES)
    for part in parts:
        whole.update(_LENGTH.pack(len(part)))
        whole.update(part)
    return whole.digest()


def canonical(attributes: Iterable[KeyValue]) -> bytes:
    """The attributes as bytes that do not depend on their order. Maps in them have no order either."""
    return b"".join(sorted(map(_pair, attributes)))


def _pair(pair: KeyValue) -> bytes:
    return _framed(pair.key.encode()) + _framed(_value(pair.value))


def _value(value: AnyValue) -> bytes:
    """Nested values begin with a letter that begins no encoded scalar."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return b"a" + b"".join(_framed(_value(item)) for item in value.array_value.values)
    if kind == "kvlist_value":
        return b"m" + canonical(value.kvlist_value.values)
    return value.SerializeToString()


def _framed(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentlyUsed(Generic[Key, Value]):
    """At most `size` values, in two generations: a value that is used moves to the young one.

    When the young generation has half of the values, it becomes the old one, and the former old one is forgotten. A
    use costs one look-up in a dict, a third of the time of an ordered dict.
    """

    def __init__(self, size: int) -> None:
        self._most = max(1, size // 2)
        self._young: dict[Key, Value] = {}
        self._old: dict[Key, Value] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: Key) -> Value | None:
        value = self._young.get(key)
        if value is None and (value := self._old.pop(key, None)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        if len(self._young) >= self._most:
            self._young, self._old = {}, self._young
        self._young[key] = value

    def clear(self) -> None:
        self._young = {}
        self._old = {}


_encode = KeyValue.SerializeToString
_WITH_TEMPORALITY: Final = ("sum", "histogram", "exponential_histogram")


@dataclass(slots=True, eq=False)
class SeriesFamily:
    """A metric of one resource and scope: everything of a series but the attributes of its points."""

    resource: StoredResource
    scope: StoredScope
    header: Metric
    """The metric without points."""
    type: SeriesType
    temporality: int | None
    monotonic: bool | None
    identity: bytes


class SeriesCache:
    """The recently used series, `size` at most. Not thread-safe."""

    def __init__(self, size: int) -> None:
        self.removals = -1
        """The number of removals of series when the cache was empty: after another one, its ids may be gone."""
        self._resources: RecentlyUsed[tuple[bytes, str], StoredResource] = RecentlyUsed(size)
        self._scopes: RecentlyUsed[tuple[bytes, str], StoredScope] = RecentlyUsed(size)
        self._families: RecentlyUsed[tuple[object, ...], SeriesFamily] = RecentlyUsed(size)
        self._series: RecentlyUsed[tuple[object, ...], StoredSeries] = RecentlyUsed(size)
        self._plain: RecentlyUsed[tuple[SeriesFamily, bytes], StoredSeries] = RecentlyUsed(size)

    def __len__(self) -> int:
        return len(self._series)

    def clear(self, removals: int = -1) -> None:
        """Forgets everything, after the store lost its tables or removed series."""
        self.removals = removals
        for cache in (self._resources, self._scopes, self._families, self._series, self._plain):
            cache.clear()

    def resource(self, resource: Resource, schema_url: str) -> StoredResource:
        key = (resource.SerializeToString(), schema_url)
        resource_ = self._resources.get(key)
        if resource_ is None:
            self._resources.put(key, resource_ := _resource(resource, schema_url))
        return resource_

    def scope(self, scope: InstrumentationScope, schema_url: str) -> StoredScope:
        key = (scope.SerializeToString(), schema_url)
        scope_ = self._scopes.get(key)
        if scope_ is None:
            self._scopes.put(key, scope_ := _scope(scope, schema_url))
        return scope_

    def family(
        self, resource: StoredResource, scope: StoredScope, metric: Metric, data: Any, type_: SeriesType
    ) -> SeriesFamily:
        """The family of a metric with data of this type."""
        temporality = data.aggregation_temporality if type_ in _WITH_TEMPORALITY else None
        monotonic = data.is_monotonic if type_ == "sum" else None
        key = (resource, scope, metric.name, metric.unit, type_, temporality, monotonic)
        cached = self._families.get(key)
        if cached is None:
            owners = (resource.fingerprint, scope.fingerprint)
            identity = fingerprint(*owners, *(str(part).encode() for part in key[2:]))
            header = _header(metric, type_)
            cached = SeriesFamily(resource, scope, header, type_, temporality, monotonic, identity)
            self._families.put(key, cached)
        return cached

    def series(self, family: SeriesFamily, attributes: Iterable[KeyValue]) -> StoredSeries:
        """The series of a family with these attributes."""
        key = (family, *map(_encode, attributes))
        cached = self._series.get(key)
        if cached is None:
            self._series.put(key, cached := _series(family, attributes))
        return cached

    def plain_series(self, family: SeriesFamily, point: NumberDataPoint, rest: bytes) -> StoredSeries | None:
        """The series of a `plain_number`, by the rest of its bytes. None if these have more than attributes."""
        series = self._plain.get((family, rest))
        if series is None and has_only_attributes(point, rest):
            self._plain.put((family, rest), series := self.series(family, point.attributes))
        return series


def _resource(resource: Resource, schema_url: str) -> StoredResource:
    rest = Resource()
    rest.CopyFrom(resource)
    rest.ClearField("attributes")
    identity = fingerprint(canonical(resource.attributes), rest.SerializeToString(), schema_url.encode())
    encoded = ResourceMetrics(resource=resource, schema_url=schema_url).SerializeToString()
    return StoredResource(identity, json_attributes(resource.attributes), json_text(schema_url), encoded)


def _scope(scope: InstrumentationScope, schema_url: str) -> StoredScope:
    rest = InstrumentationScope()
    rest.CopyFrom(scope)
    rest.ClearField("attributes")
    identity = fingerprint(canonical(scope.attributes), rest.SerializeToString(), schema_url.encode())
    return StoredScope(
        fingerprint=identity,
        name=json_text(scope.name),
        version=json_text(scope.version),
        attributes=json_attributes(scope.attributes),
        schema_url=json_text(schema_url),
        encoded=ScopeMetrics(scope=scope, schema_url=schema_url).SerializeToString(),
    )


def _header(metric: Metric, type_: SeriesType) -> Metric:
    header = Metric(name=metric.name, description=metric.description, unit=metric.unit, metadata=metric.metadata)
    getattr(header, type_).SetInParent()
    if type_ in _WITH_TEMPORALITY:
        getattr(header, type_).aggregation_temporality = getattr(metric, type_).aggregation_temporality
    if type_ == "sum":
        header.sum.is_monotonic = metric.sum.is_monotonic
    return header


def _series(family: SeriesFamily, attributes: Iterable[KeyValue]) -> StoredSeries:
    whole = Metric()
    whole.CopyFrom(family.header)
    getattr(whole, family.type).data_points.add().attributes.extend(attributes)
    details = SeriesDetails(
        resource=family.resource,
        scope=family.scope,
        metric=json_text(whole.name),
        description=json_text(whole.description),
        unit=json_text(whole.unit),
        type=family.type,
        temporality=family.temporality,
        monotonic=family.monotonic,
        attributes=json_attributes(attributes),
        encoded=whole.SerializeToString(),
    )
    return StoredSeries(fingerprint(family.identity, canonical(attributes)), details)
