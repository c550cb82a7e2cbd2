"""Where points come from: a resource and a scope, as the labels their series share."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics, ScopeMetrics

from otel_zernel.exposition.labels import Labelled, joined, label_text, labelled, value_text
from otel_zernel.exposition.names import Naming
from otel_zernel.exposition.options import Options

if TYPE_CHECKING:  # a stream knows its origin
    from otel_zernel.exposition.stream import Stream, StreamKey

_SERVICE = ("service.namespace", "service.name", "service.instance.id")
"""The attributes that become `job` and `instance`."""

Labels = dict[str, str]


class Origin:
    """A resource and a scope, with the streams that come from them."""

    def __init__(self, resource: ResourceMetrics, scope: ScopeMetrics, naming: Naming, options: Options) -> None:
        attributes = resource.resource.attributes
        self.target = _target(attributes) if options.target_labels else {}
        """`job` and `instance`, where the resource has them."""
        self.constant = {naming.label(name): value for name, value in options.const_labels.items()}
        self.streams: dict[StreamKey, Stream] = {}
        self._naming = naming
        self._fixed = self.constant | self.target
        described = [one for one in attributes if not options.target_labels or one.key not in _SERVICE]
        self.info = joined(self._freed(one) for one in labelled(described, naming))
        """The resource's other attributes, as labels of `target_info`."""
        kept = [one for one in attributes if one.key in options.resource_constant_labels]
        self._shared = labelled(kept, naming)
        if not options.without_scope_info:
            self._fixed |= _scope_labels(scope)
            self._shared += labelled(scope.scope.attributes, naming, "otel_scope_")

    def label_text(self, attributes: Iterable[KeyValue], reserved: str | None) -> str:
        """The labels of a point, whose attributes go before the resource's of the same name.

        An attribute whose label is already given, or is `reserved`, becomes an `exported_` one.
        """
        attributed = {one[0]: one for one in (*self._shared, *labelled(attributes, self._naming))}
        return label_text(joined(self._freed(one, reserved) for one in attributed.values()) | self._fixed)

    def _freed(self, one: Labelled, reserved: str | None = None) -> Labelled:
        attribute, name, value = one
        taken = name == reserved or name in self._fixed
        return (attribute, f"exported_{name}", value) if taken else one


def _target(attributes: Iterable[KeyValue]) -> Labels:
    values = {pair.key: value_text(pair.value) for pair in attributes if pair.key in _SERVICE}
    namespace, name, instance = (values.get(key, "") for key in _SERVICE)
    job = f"{namespace}/{name}" if namespace and name else name
    return {label: value for label, value in (("job", job), ("instance", instance)) if value}


def _scope_labels(scope: ScopeMetrics) -> Labels:
    labels = {
        "otel_scope_name": scope.scope.name,
        "otel_scope_version": scope.scope.version,
        "otel_scope_schema_url": scope.schema_url,
    }
    return {label: value for label, value in labels.items() if value}


def target_infos(origins: Iterable[Origin], *, target_labels: bool) -> list[str]:
    """The labels of `target_info`, one text for each (job, instance).

    Several resources may share a target, as the GPUs of a host do. Two lines for it could not be joined with, so what
    they differ in is left out. A target of which nothing is known has no line.
    """
    common: dict[str, tuple[Labels, Labels]] = {}
    for origin in origins:
        if origin.target or not target_labels:
            key = label_text(origin.target)
            _, known = common.get(key, ({}, origin.info))
            common[key] = origin.constant | origin.target, dict(known.items() & origin.info.items())
    return [label_text(info | fixed) for fixed, info in common.values() if info]
