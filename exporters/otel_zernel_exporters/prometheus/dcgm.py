"""`naming: dcgm`: the metrics of GPUs under the names, labels and units of NVIDIA's dcgm-exporter."""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    DataPointFlags,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.otlp.points import Descriptor, key_values
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.prometheus.dcgm_events import COUNTED, Events, LastXids
from otel_zernel_exporters.prometheus.dcgm_sums import SUMMED, SummedSeries, Sums, part_of
from otel_zernel_libraries.gpu_names.dcgm import KUBERNETES, NVLINKS, Measure
from otel_zernel_libraries.gpu_names.dcgm_blanks import is_blank
from otel_zernel_libraries.gpu_names.dcgm_fields import METRICS, field_of, field_unit, field_value
from otel_zernel_libraries.gpu_names.dcgm_help import HELP
from otel_zernel_libraries.prometheus.labels import value_text
from otel_zernel_libraries.prometheus.stream import attributes_key, number_key
from otel_zernel_libraries.training import semconv

_KNOWN = 50_000
"""Remembered series: 500 bytes each."""
DCGM = "DCGM_"
"""The beginning of the names of all fields of DCGM and metrics of dcgm-exporter."""

LABELS: Mapping[str, tuple[str, ...]] = {
    "gpu": (semconv.GPU_INDEX,),
    "UUID": ("hw.parent", "hw.id"),
    "pci_bus_id": (semconv.GPU_PCI_BUS_ID, "pci_bus_id"),
    "device": (semconv.GPU_DEVICE,),
    "modelName": ("hw.model",),
    "hostname": ("host.name", "hostname", "Hostname"),
    "DCGM_FI_DRIVER_VERSION": ("hw.driver_version",),
    "GPU_I_PROFILE": (semconv.GPU_MIG_PROFILE, "GPU_I_PROFILE"),
    "GPU_I_ID": (semconv.GPU_MIG_GPU_INSTANCE, "GPU_I_ID"),
    "health_watch": (semconv.GPU_HEALTH_WATCH, "health_watch"),
    "health_error_code": (semconv.GPU_HEALTH_ERROR, "health_error_code"),
    "peer_gpu": (semconv.GPU_P2P_PEER, "peer_gpu"),
    "link_status": (semconv.GPU_P2P_STATE, "link_status"),
    **{label: (attribute,) for label, attribute in KUBERNETES.items()},
}
"""The attributes of points or resources by label of dcgm-exporter. The first one that exists counts: the UUID of a MIG
instance is that of its board, as in dcgm-exporter.

Other attributes of points are labels too if their names have no dot: they are labels of a scraped page, such as
`hpc_job`, `err_code` and those of pods."""

COUNTERS = frozenset(
    {
        *(f"DCGM_FI_DEV_NVLINK_BANDWIDTH_{link}" for link in ("TOTAL", *(f"L{link}" for link in range(NVLINKS)))),
        *("DCGM_EXP_CLOCK_EVENTS_COUNT", "DCGM_EXP_XID_ERRORS_COUNT"),
        *("DCGM_EXP_GPU_HEALTH_STATUS", "DCGM_EXP_P2P_STATUS"),
    }
)
"""The rates and counts that may fall, which dcgm-exporter calls counters."""

_Source = tuple[bytes, bytes]
"""The resource and the attributes of a series."""


class _Field(NamedTuple):
    """A series under its DCGM name."""

    name: str
    measure: Measure
    labels: bytes
    """As an encoded number point that has no other field."""


class DcgmNaming:
    """Renames the series of GPUs that DCGM has a field for. All others keep their names.

    Two series may get the same labels. Then `drop` counts a point as `collision`, and `warn` explains it once.
    """

    def __init__(
        self,
        hostname: str = "hostname",
        drop: Callable[[int, str], None] = lambda *_: None,
        warn: Callable[..., None] = lambda *_: None,
    ) -> None:
        """`hostname` is the label of the host's name."""
        labels = {hostname if label == "hostname" else label: names for label, names in LABELS.items()}
        self._field = lru_cache(maxsize=_KNOWN)(partial(_find, labels))
        self._part = lru_cache(maxsize=_KNOWN)(partial(_find_part, labels))
        self._drop = drop
        self._warn = warn
        self._events = Events(_KNOWN)
        self._last_xids = LastXids(_KNOWN)
        self._sources: dict[tuple[str, bytes], tuple[_Source, ...]] = {}
        """By name and labels: the source of the last point, and the one before it if that was another."""
        self._colliding: set[str] = set()

    def renamed(self, metrics: MetricsData) -> MetricsData:
        """The same points, those of DCGM's fields without a resource: their labels say all. Leaves `metrics` as is."""
        if not any(
            _may_have_field(metric)
            for resource_metric in metrics.resource_metrics
            for metric in _metrics_of(resource_metric)
        ):
            return metrics
        if len(self._sources) > _KNOWN:
            self._sources.clear()
        fields: dict[tuple[str, str], Metric] = {}
        sums = Sums()
        others = [self._split(resource, fields, sums) for resource in metrics.resource_metrics]
        sums.add_to(fields)
        self._events.add_to(fields)
        renamed = ResourceMetrics()
        renamed.scope_metrics.add().metrics.extend(_typed(metric) for metric in fields.values())
        return MetricsData(resource_metrics=[*others, renamed])

    def _is_of_another(self, field: _Field, source: _Source, *, ends: bool) -> bool:
        """Whether this end of a series must not end the series of another source. Reports collisions."""
        key = field.name, field.labels
        known = self._sources.get(key, ())
        if known[:1] == (source,):
            return False
        if ends:
            return bool(known)
        if source in known:
            self._drop(1, "collision")
            if field.name not in self._colliding:
                self._colliding.add(field.name)
                self._warn(
                    "Prometheus metric %s: two series of GPUs have the same labels, and only the newer one is shown; "
                    "give their points an attribute in which they differ, with a name without a dot",
                    field.name,
                )
        self._sources[key] = (source, *known[:1])
        return False

    def _split(self, resource: ResourceMetrics, fields: dict[tuple[str, str], Metric], sums: Sums) -> ResourceMetrics:
        """Adds the points of DCGM's fields to `fields` and `sums`, and returns all others."""
        encoded = resource.resource.SerializeToString()
        others = ResourceMetrics(resource=resource.resource, schema_url=resource.schema_url)
        for scope in resource.scope_metrics:
            rest = others.scope_metrics.add(scope=scope.scope, schema_url=scope.schema_url)
            for metric in scope.metrics:
                if metric.name in SUMMED or metric.name in COUNTED:
                    self._collect(metric, encoded, sums)
                if _may_have_field(metric):
                    rest.metrics.extend(self._unnamed(metric, encoded, fields))
                else:
                    rest.metrics.append(metric)
        return others

    def _collect(self, metric: Metric, resource: bytes, sums: Sums) -> None:
        """Adds the metric's points to the sums and counts that they belong to."""
        for point in (metric.sum if metric.HasField("sum") else metric.gauge).data_points:
            about = self._part(resource, metric.name, number_key(point))
            if about is None:
                continue
            labels, own, part = about
            if part:
                sums.add(part, labels, point)
            if metric.name in COUNTED:
                self._events.add(metric, point, own, labels)

    def _unnamed(self, metric: Metric, resource: bytes, fields: dict[tuple[str, str], Metric]) -> Iterable[Metric]:
        """Adds the metric's points to `fields`; returns the metric with those that DCGM has no field for, if any."""
        kind = _kind(metric)
        data = metric.sum if metric.HasField("sum") else metric.gauge
        others: list[NumberDataPoint] = []
        for point in data.data_points:
            attributes = number_key(point)
            metric_ = self._field(resource, metric.name, metric.unit, kind, attributes)
            if metric_ is None:
                others.append(point)
                continue
            ends = has_no_value(point) or is_blank(metric.name, point.as_double or float(point.as_int))
            if not self._is_of_another(metric_, (resource, attributes), ends=ends):
                key = metric_.name, f"{kind} {metric.sum.aggregation_temporality}"
                target = fields.get(key) or fields.setdefault(key, _metric(metric_, metric))
                _add_point(target, point, metric_, ends=ends)
                if metric_.name == LastXids.FIELD:
                    self._last_xids.label(target, metric_.labels)
        if others:
            rest = _copy_without_points(metric)
            (rest.sum if rest.HasField("sum") else rest.gauge).data_points.extend(others)
            yield rest


def _metrics_of(resource: ResourceMetrics) -> Iterable[Metric]:
    return (metric for scope in resource.scope_metrics for metric in scope.metrics)


def _may_have_field(metric: Metric) -> bool:
    is_known = metric.name in METRICS | SUMMED | COUNTED or metric.name.startswith(DCGM)
    return is_known and metric.WhichOneof("data") in ("gauge", "sum")


def _kind(metric: Metric) -> Literal["gauge", "sum", "up_down"]:
    if metric.HasField("gauge"):
        return "gauge"
    return "sum" if metric.sum.is_monotonic else "up_down"


def _find(
    names: Mapping[str, tuple[str, ...]],
    resource: bytes,
    name: str,
    unit: str,
    kind: Literal["gauge", "sum", "up_down"],
    attributes: bytes,
) -> _Field | None:
    """The field of a series; `attributes` are those of its points, as `number_key` returns them.

    `names` has the attributes by label. A field that the table does not have keeps its name and value.
    """
    own = _texts(NumberDataPoint.FromString(attributes).attributes)
    about = _texts(Resource.FromString(resource).attributes) | own
    descriptor = Descriptor(name, unit, kind)
    if name.startswith(DCGM):  # of a scraped page: a field that the table does not have
        field = (name, Measure(descriptor)) if _is_gpu(about) or "gpu" in own else None
    else:
        field = field_of(descriptor, own) if _is_gpu(about) else None
    return _Field(*field, _labels(names, about, own)) if field else None


def _find_part(
    names: Mapping[str, tuple[str, ...]], resource: bytes, name: str, attributes: bytes
) -> tuple[bytes, Mapping[str, str], SummedSeries | None] | None:
    """The labels of a series of a GPU, its own attributes, and what it is in a sum."""
    own = _texts(NumberDataPoint.FromString(attributes).attributes)
    about = _texts(Resource.FromString(resource).attributes) | own
    if not _is_gpu(about):
        return None
    return _labels(names, about, own), own, part_of(name, own) if name in SUMMED else None


def _is_gpu(about: Mapping[str, str]) -> bool:
    return about.get("hw.type", "gpu") == "gpu" and ("hw.id" in about or semconv.GPU_INDEX in about)


def _labels(names: Mapping[str, tuple[str, ...]], about: Mapping[str, str], own: Mapping[str, str]) -> bytes:
    """The labels as an encoded number point that has no other field."""
    used = {attribute for sources in names.values() for attribute in sources}
    labels = {label: text for label, text in own.items() if "." not in label and label not in used}
    labels |= {label: text for label, sources in names.items() if (text := _first(about, sources))}
    return attributes_key(key_values(dict(sorted(labels.items()))))


def _texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {attribute.key: value_text(attribute.value) for attribute in attributes}


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
    if help_text := HELP.get(field.name):
        copy.description = help_text
        return copy
    unit = field_unit(field.measure)
    about = metric.description.rstrip(".") or f"OpenTelemetry metric {metric.name}"
    copy.description = f"{about} (in {unit})." if unit else f"{about}."
    return copy


def _typed(metric: Metric) -> Metric:
    """The metric with the type that dcgm-exporter gives it, also if its values fall."""
    if metric.name not in COUNTERS or not metric.HasField("gauge"):
        return metric
    points = metric.gauge.data_points
    typed = Metric(name=metric.name, description=metric.description)
    typed.sum.is_monotonic = True
    typed.sum.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    typed.sum.data_points.extend(points)
    return typed


def _add_point(target: Metric, point: NumberDataPoint, field: _Field, *, ends: bool) -> None:
    renamed = (target.sum if target.HasField("sum") else target.gauge).data_points.add()
    renamed.ParseFromString(field.labels)
    renamed.start_time_unix_nano, renamed.time_unix_nano = point.start_time_unix_nano, point.time_unix_nano
    renamed.as_double = field_value(point.as_double or float(point.as_int), field.measure)
    renamed.flags = point.flags | ends * DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
