"""dcgm-exporter's long layout: a row for each GPU and field, with the labels it had in Prometheus."""

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
from otel_zernel_receivers.csv.layouts.layout import SCOPE, Layout, Stream

# Labels that say again what a column says.
_REPEATED = ("__name__", "gpu", "device", "UUID", "modelName", "Hostname")
# dcgm-exporter's labels of a MIG instance, whose uuid is its GPU's. They may be columns, too.
_MIG = ("GPU_I_ID", "GPU_I_PROFILE")


class DcgmLayout(Layout):
    """`layout: dcgm`."""

    timestamp = "timestamp"
    needed = ("metric_name", "gpu_id", "uuid", "Hostname")
    optional = ("device", "modelName", *KUBERNETES, *_MIG, "labels_raw")
    numbers = ("value",)
    sparse = False

    def stream(self, texts: Mapping[str, str], number: str) -> Stream:
        try:
            labels, flawed = parse_labels(texts.get("labels_raw", "")), False
        except ValueError:
            labels, flawed = {}, True
        for repeated in _REPEATED:
            labels.pop(repeated, None)
        labels |= {column: texts[column] for column in _MIG if texts.get(column)}
        resource = _encoded(tuple(_resource(texts, labels).items()))
        name = texts["metric_name"]
        measure = FIELDS.get(name) or _told(name, labels)
        attributes = {"hw.id": texts["uuid"] or texts["gpu_id"], **_typed(labels), **measure.attributes}
        series = Series(resource, SCOPE, measure.descriptor, encode_point_attributes(attributes))
        return Stream(series, measure.scale, flawed)


@lru_cache(maxsize=4096)
def _encoded(resource: tuple[tuple[str, AttributeValue], ...]) -> bytes:
    """A GPU's resource is the same for all of its metrics."""
    return encode_resource(dict(resource))


def _resource(texts: Mapping[str, str], labels: dict[str, str]) -> dict[str, AttributeValue]:
    """The GPU's resource. What it takes from the labels, it takes out of them."""
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
    own = {label for label in labels if label.startswith(RESOURCE)}
    resource |= _typed({label.removeprefix(RESOURCE): labels.pop(label) for label in sorted(own)})
    return {name: value for name, value in resource.items() if value != ""}


def _told(name: str, labels: dict[str, str]) -> Measure:
    """What the labels say about a metric that is no field of DCGM's; they are taken out."""
    kind, unit = labels.pop(TYPE, ""), labels.pop(UNIT, "")
    if not (kind or unit) and (implied := implied_descriptor(name)):
        return Measure(implied)
    return Measure(Descriptor(name, unit, TYPES.get(kind, "gauge")))


def _typed(labels: Mapping[str, str]) -> dict[str, AttributeValue]:
    return {name: int(text) if name in INTEGERS and text.isdecimal() else text for name, text in labels.items()}
