"""From resources, scopes, metrics and attributes of OTLP to the series of the store, with a bounded cache."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel_libraries.store.rows.attributes import json_attributes, json_text
from otel_zernel_libraries.store.rows.identities import canonical, fingerprint
from otel_zernel_libraries.store.rows.plain_numbers import has_only_attributes
from otel_zernel_libraries.store.rows.recent import RecentlyUsed
from otel_zernel_libraries.store.rows.stored import SeriesDetails, SeriesType, StoredResource, StoredScope, StoredSeries

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
        found = self._resources.get(key)
        if found is None:
            self._resources.put(key, found := _resource(resource, schema_url))
        return found

    def scope(self, scope: InstrumentationScope, schema_url: str) -> StoredScope:
        key = (scope.SerializeToString(), schema_url)
        found = self._scopes.get(key)
        if found is None:
            self._scopes.put(key, found := _scope(scope, schema_url))
        return found

    def family(
        self, resource: StoredResource, scope: StoredScope, metric: Metric, data: Any, type_: SeriesType
    ) -> SeriesFamily:
        """The family of a metric with data of this type."""
        temporality = data.aggregation_temporality if type_ in _WITH_TEMPORALITY else None
        monotonic = data.is_monotonic if type_ == "sum" else None
        key = (resource, scope, metric.name, metric.unit, type_, temporality, monotonic)
        found = self._families.get(key)
        if found is None:
            owners = (resource.fingerprint, scope.fingerprint)
            identity = fingerprint(*owners, *(str(part).encode() for part in key[2:]))
            header = _header(metric, type_)
            found = SeriesFamily(resource, scope, header, type_, temporality, monotonic, identity)
            self._families.put(key, found)
        return found

    def series(self, family: SeriesFamily, attributes: Iterable[KeyValue]) -> StoredSeries:
        """The series of a family with these attributes."""
        key = (family, *map(_encode, attributes))
        found = self._series.get(key)
        if found is None:
            self._series.put(key, found := _series(family, attributes))
        return found

    def plain_series(self, family: SeriesFamily, point: NumberDataPoint, rest: bytes) -> StoredSeries | None:
        """The series of a `plain_number`, by the rest of its bytes. None if these have more than attributes."""
        found = self._plain.get((family, rest))
        if found is None and has_only_attributes(point, rest):
            self._plain.put((family, rest), found := self.series(family, point.attributes))
        return found


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
