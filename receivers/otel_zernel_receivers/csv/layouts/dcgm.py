"""dcgm-exporter's long layout: one row per GPU and field, with the Prometheus labels."""

from collections.abc import Mapping
from functools import lru_cache

from otel_zernel.formats.dcgm import (
    FIELDS,
    INTEGERS,
    KUBERNETES,
    LABELS,
    RESOURCE,
    TYPE,
    TYPES,
    UNIT,
    Measure,
    implied_descriptor,
)
from otel_zernel.otlp.points import AttributeValue, Descriptor, Series, encode_point_attributes, encode_resource
from otel_zernel_receivers.csv.layouts.gpu import gpu_resource
from otel_zernel_receivers.csv.layouts.labels import parse_labels
from otel_zernel_receivers.csv.layouts.layout import SCOPE, CsvLayout, CsvSeries

# Labels with the same content as a column.
_REPEATED = ("__name__", "gpu", "device", "UUID", "modelName", "Hostname")
# dcgm-exporter's labels of a MIG instance, whose `uuid` is that of its GPU. They may also be columns.
_MIG = ("GPU_I_ID", "GPU_I_PROFILE")


class DcgmLayout(CsvLayout):
    """`layout: dcgm`."""

    timestamp = "timestamp"
    required = ("metric_name", "gpu_id", "uuid", "Hostname")
    optional = ("device", "modelName", *KUBERNETES, *_MIG, "labels_raw")
    numbers = ("value",)
    sparse = False

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        try:
            labels, malformed = parse_labels(texts.get("labels_raw", "")), False
        except ValueError:
            labels, malformed = {}, True
        for repeated in _REPEATED:
            labels.pop(repeated, None)
        labels |= {column: texts[column] for column in _MIG if texts.get(column)}
        resource = _encode(tuple(_pop_resource(texts, labels).items()))
        name = texts["metric_name"]
        measure = FIELDS.get(name) or _pop_measure(name, labels)
        attributes = {"hw.id": texts["uuid"] or texts["gpu_id"], **_typed(labels), **measure.attributes}
        series = Series(resource, SCOPE, measure.descriptor, encode_point_attributes(attributes))
        return CsvSeries(series, measure.scale, malformed)


@lru_cache(maxsize=4096)
def _encode(resource: tuple[tuple[str, AttributeValue], ...]) -> bytes:
    """Encodes a resource. Cached, because all metrics of a GPU have the same resource."""
    return encode_resource(dict(resource))


def _pop_resource(texts: Mapping[str, str], labels: dict[str, str]) -> dict[str, AttributeValue]:
    """The GPU's resource. Removes the labels that become resource attributes."""
    resource = gpu_resource(
        uuid=texts["uuid"],
        index=texts["gpu_id"],
        model=texts.get("modelName", ""),
        hostname=texts["Hostname"],
        device=texts.get("device", ""),
    )
    for label, attribute in LABELS.items():
        resource[attribute] = labels.pop(label, "") or resource.get(attribute, "")
    for column, attribute in KUBERNETES.items():
        label = labels.pop(column, "")
        resource[attribute] = texts.get(column) or label
    prefixed = sorted(label for label in labels if label.startswith(RESOURCE))
    resource |= _typed({label.removeprefix(RESOURCE): labels.pop(label) for label in prefixed})
    return {name: value for name, value in resource.items() if value != ""}


def _pop_measure(name: str, labels: dict[str, str]) -> Measure:
    """A metric that is no DCGM field, with type and unit from the labels. Removes these labels."""
    kind, unit = labels.pop(TYPE, ""), labels.pop(UNIT, "")
    if not (kind or unit) and (implied := implied_descriptor(name)):
        return Measure(implied)
    return Measure(Descriptor(name, unit, TYPES.get(kind, "gauge")))


def _typed(labels: Mapping[str, str]) -> dict[str, AttributeValue]:
    return {name: int(text) if name in INTEGERS and text.isdecimal() else text for name, text in labels.items()}
