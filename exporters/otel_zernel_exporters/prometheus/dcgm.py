"""`naming: dcgm`: the metrics of GPUs under the names, labels and units of NVIDIA's dcgm-exporter."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.exposition.labels import value_text
from otel_zernel.exposition.stream import attributes_key, number_key
from otel_zernel.formats.dcgm import KUBERNETES, Measure
from otel_zernel.formats.dcgm_fields import METRICS, field_of, field_unit, field_value
from otel_zernel.otlp.points import Descriptor, key_values

_KNOWN = 50_000
"""Remembered series: 500 bytes each."""

LABELS: Mapping[str, tuple[str, ...]] = {
    "gpu": ("zernel.gpu.index",),
    "UUID": ("hw.parent", "hw.id"),
    "pci_bus_id": ("zernel.gpu.pci.bus_id",),
    "device": ("zernel.gpu.device",),
    "modelName": ("hw.model",),
    "Hostname": ("host.name",),
    "DCGM_FI_DRIVER_VERSION": ("hw.driver_version",),
    "GPU_I_PROFILE": ("zernel.gpu.mig.profile", "GPU_I_PROFILE"),
    "GPU_I_ID": ("zernel.gpu.mig.gpu_instance", "GPU_I_ID"),
    **{label: (attribute,) for label, attribute in KUBERNETES.items()},
}
"""The attributes of points or resources by label of dcgm-exporter. The first one that exists counts: the UUID of a MIG
instance is that of its board, as in dcgm-exporter."""


class _Field(NamedTuple):
    """A series under its DCGM name."""

    name: str
    measure: Measure
    labels: bytes
    """As an encoded number point that has no other field."""


class DcgmNaming:
    """Renames the series of GPUs that DCGM has a field for. All others keep their names."""

    def __init__(self) -> None:
        self._field = lru_cache(maxsize=_KNOWN)(_find)

    def renamed(self, metrics: MetricsData) -> MetricsData:
        """The same points, those of DCGM's fields without a resource: their labels say all. Leaves `metrics` as is."""
        if not any(metric.name in METRICS for one in metrics.resource_metrics for metric in _metrics_of(one)):
            return metrics
        fields: dict[tuple[str, str], Metric] = {}
        others = [self._split(resource, fields) for resource in metrics.resource_metrics]
        renamed = ResourceMetrics()
        renamed.scope_metrics.add().metrics.extend(fields.values())
        return MetricsData(resource_metrics=[*others, renamed])

    def _split(self, resource: ResourceMetrics, fields: dict[tuple[str, str], Metric]) -> ResourceMetrics:
        """Adds the points of DCGM's fields to `fields`, and returns all others."""
        encoded = resource.resource.SerializeToString()
        others = ResourceMetrics(resource=resource.resource, schema_url=resource.schema_url)
        for scope in resource.scope_metrics:
            rest = others.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url)
            for metric in scope.metrics:
                if metric.name in METRICS and metric.WhichOneof("data") in ("gauge", "sum"):
                    rest.metrics.extend(self._unnamed(metric, encoded, fields))
                else:
                    rest.metrics.append(metric)
        return others

    def _unnamed(self, metric: Metric, resource: bytes, fields: dict[tuple[str, str], Metric]) -> Iterable[Metric]:
        """Adds the metric's points to `fields`; returns the metric with those that DCGM has no field for, if any."""
        kind = _kind(metric)
        data = metric.sum if metric.HasField("sum") else metric.gauge
        others: list[NumberDataPoint] = []
        for point in data.data_points:
            found = self._field(resource, metric.name, metric.unit, kind, number_key(point))
            if found is None:
                others.append(point)
            else:
                key = found.name, f"{kind} {metric.sum.aggregation_temporality}"
                target = fields.get(key) or fields.setdefault(key, _metric(found, metric))
                _add_point(target, point, found)
        if others:
            rest = _copy_without_points(metric)
            (rest.sum if rest.HasField("sum") else rest.gauge).data_points.extend(others)
            yield rest


def _metrics_of(resource: ResourceMetrics) -> Iterable[Metric]:
    return (metric for scope in resource.scope_metrics for metric in scope.metrics)


def _kind(metric: Metric) -> Literal["gauge", "sum", "up_down"]:
    if metric.HasField("gauge"):
        return "gauge"
    return "sum" if metric.sum.is_monotonic else "up_down"


def _find(
    resource: bytes, name: str, unit: str, kind: Literal["gauge", "sum", "up_down"], attributes: bytes
) -> _Field | None:
    """The field of a series; `attributes` are those of its points, as `number_key` returns them."""
    own = _texts(NumberDataPoint.FromString(attributes).attributes)
    about = _texts(Resource.FromString(resource).attributes) | own
    is_gpu = about.get("hw.type", "gpu") == "gpu" and ("hw.id" in about or "zernel.gpu.index" in about)
    found = field_of(Descriptor(name, unit, kind), own) if is_gpu else None
    if found is None:
        return None
    labels = {label: _first(about, names) for label, names in LABELS.items()}
    return _Field(*found, attributes_key(key_values({label: text for label, text in labels.items() if text})))


def _texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {one.key: value_text(one.value) for one in attributes}


def _first(about: Mapping[str, str], names: Iterable[str]) -> str:
    return next((about[name] for name in names if about.get(name)), "")


def _copy_without_points(metric: Metric) -> Metric:
    copy = Metric(name=metric.name, unit=metric.unit, description=metric.description)
    if metric.HasField("sum"):
        copy.sum.aggregation_temporality = metric.sum.aggregation_temporality
        copy.sum.is_monotonic = metric.sum.is_monotonic
    else:
        copy.gauge.SetInParent()
    return copy


def _metric(field: _Field, metric: Metric) -> Metric:
    """The metric of a field, without points. Its unit is a part of the description: DCGM's names have none."""
    copy = _copy_without_points(metric)
    copy.name, copy.unit = field.name, ""
    unit = field_unit(field.measure)
    about = metric.description.rstrip(".") or f"OpenTelemetry metric {metric.name}"
    copy.description = f"{about} (in {unit})." if unit else f"{about}."
    return copy


def _add_point(target: Metric, point: NumberDataPoint, field: _Field) -> None:
    renamed = (target.sum if target.HasField("sum") else target.gauge).data_points.add()
    renamed.ParseFromString(field.labels)
    renamed.start_time_unix_nano, renamed.time_unix_nano = point.start_time_unix_nano, point.time_unix_nano
    renamed.as_double = field_value(point.as_double or float(point.as_int), field.measure)
    renamed.flags = point.flags
