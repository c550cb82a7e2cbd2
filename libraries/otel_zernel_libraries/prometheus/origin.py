"""The origin of points: a resource and a scope, and the labels that all their series have."""

from collections.abc import Iterable

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import ResourceMetrics, ScopeMetrics

from otel_zernel_libraries.prometheus.labels import Label, label_text, labels_of, value_text, values_by_name
from otel_zernel_libraries.prometheus.names import Naming
from otel_zernel_libraries.prometheus.options import Options

_SERVICE = ("service.namespace", "service.name", "service.instance.id")
"""The attributes that become `job` and `instance`."""

Labels = dict[str, str]
"""Label values by name."""


class Origin:
    """The labels of one resource and one scope."""

    def __init__(self, resource: ResourceMetrics, scope: ScopeMetrics, naming: Naming, options: Options) -> None:
        attributes = resource.resource.attributes
        self.target = _target(attributes) if options.target_labels else {}
        """`job` and `instance`, if the resource has the attributes for them."""
        self.constant = {naming.label(name): value for name, value in options.const_labels.items()}
        self._naming = naming
        self._fixed = self.constant | self.target
        described = [
            attribute for attribute in attributes if not options.target_labels or attribute.key not in _SERVICE
        ]
        self.info = values_by_name(self._renamed_on_conflict(label) for label in labels_of(described, naming))
        """The resource's other attributes, as labels of `target_info`."""
        chosen = [attribute for attribute in attributes if attribute.key in options.resource_constant_labels]
        self._shared = labels_of(chosen, naming)
        if not options.without_scope_info:
            self._fixed |= _scope_labels(scope)
            self._shared += labels_of(scope.scope.attributes, naming, "otel_scope_")

    def label_text(self, attributes: Iterable[KeyValue], reserved: str | None) -> str:
        """The labels of a point as text. `labels` describes the arguments."""
        return label_text(self.labels(attributes, reserved))

    def labels(self, attributes: Iterable[KeyValue], reserved: str | None) -> Labels:
        """The labels of a point. An attribute of the point overrides the resource's attribute of the same name.

        If the label name is a fixed one (`job`, a constant or scope label) or the `reserved` one (`le`, `quantile`),
        the attribute's label gets the prefix `exported_`. Values may be empty.
        """
        by_attribute = {label.attribute: label for label in (*self._shared, *labels_of(attributes, self._naming))}
        own = values_by_name(self._renamed_on_conflict(label, reserved) for label in by_attribute.values())
        return own | self._fixed

    def _renamed_on_conflict(self, label: Label, reserved: str | None = None) -> Label:
        conflicts = label.name == reserved or label.name in self._fixed
        return label._replace(name=f"exported_{label.name}") if conflicts else label


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
    """The label texts of `target_info`. `target_info_labels` describes them."""
    return [label_text(labels) for labels in target_info_labels(origins, target_labels=target_labels).values()]


def target_info_labels(origins: Iterable[Origin], *, target_labels: bool) -> dict[str, Labels]:
    """The labels of `target_info`, one for each target, by the label text of its `job` and `instance`.

    Several resources may share a target, as the GPUs of a host do. PromQL joins need one `target_info` per target, so
    only the labels that all these resources agree on are kept. A target without such labels has no `target_info`.
    """
    infos: dict[str, tuple[Labels, Labels]] = {}
    for origin in origins:
        if origin.target or not target_labels:
            key = label_text(origin.target)
            _, common = infos.get(key, ({}, origin.info))
            infos[key] = origin.constant | origin.target, dict(common.items() & origin.info.items())
    return {key: common | fixed for key, (fixed, common) in infos.items() if common}
