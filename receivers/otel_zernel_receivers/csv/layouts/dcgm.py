"""The long layout of an export of DCGM's metrics: one row per GPU and field, with the Prometheus labels."""

import re
from collections.abc import Mapping
from functools import lru_cache

from otel_zernel.otlp.points import AttributeValue, Descriptor, Series, encode_point_attributes, encode_resource
from otel_zernel_libraries.gpu_names import dcgm
from otel_zernel_libraries.gpu_names.dcgm_blanks import TEXTS, blank_from
from otel_zernel_libraries.gpu_names.descriptions import DESCRIPTIONS
from otel_zernel_libraries.gpu_names.newer_dcgm import MEASURES, NEWER_LABELS
from otel_zernel_receivers.csv.layouts.layout import SCOPE, CsvLayout, CsvSeries, gpu_resource

# Names may contain dots, or be quoted (allowed since Prometheus 3).
_LABEL = re.compile(r'\s*(?:([A-Za-z_][\w.:]*)|"((?:[^"\\]|\\.)+)")\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def parse_labels(text: str) -> dict[str, str]:
    r"""The labels, with `\\`, `\"` and `\n` unescaped. Enclosing braces are accepted. Raises `ValueError`."""
    text = text.strip().removeprefix("{").removesuffix("}").rstrip()
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if not match:
            raise ValueError(
                f"not Prometheus labels from character {position + 1} on: {text[position : position + 40]!r}"
            )
        labels[match[1] or _unescape(match[2])] = _unescape(match[3])
        position = match.end()
    return labels


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text


# Columns, and the labels with the same content. A label replaces a column that is missing or empty.
_REPEATED = {"gpu_id": "gpu", "device": "device", "uuid": "UUID", "modelName": "modelName", "Hostname": "Hostname"}
# dcgm-exporter's labels of a MIG instance, whose `uuid` is that of its GPU. They may also be columns.
_MIG = ("GPU_I_ID", "GPU_I_PROFILE")


class DcgmLayout(CsvLayout):
    """`layout: dcgm`."""

    name = "dcgm"
    timestamp = "timestamp"
    required = ("metric_name",)
    either = (("uuid", "gpu_id"),)
    optional = ("Hostname", "hostname", "device", "modelName", *dcgm.KUBERNETES, *_MIG, "labels_raw")
    numbers = ("value",)
    sparse = False

    def series(self, texts: Mapping[str, str], number: str) -> CsvSeries:
        try:
            labels, malformed = parse_labels(texts.get("labels_raw", "")), False
        except ValueError:
            labels, malformed = {}, True
        texts = {column: "" if text in TEXTS else text for column, text in texts.items()}
        labels = {label: text for label, text in labels.items() if text not in TEXTS}
        about = _pop_repeated(texts, labels)
        labels |= {column: texts[column] for column in _MIG if texts.get(column)}
        resource = _encode(tuple(_pop_resource(about, labels).items()))
        name = texts["metric_name"]
        measure = MEASURES.get(name) or _pop_measure(name, labels)
        attributes = {"hw.id": about["uuid"] or about["gpu_id"], **_typed(labels), **measure.attributes}
        series = Series(resource, SCOPE, measure.descriptor, encode_point_attributes(attributes))
        return CsvSeries(series, measure.scale, malformed, measure.maybe_percent, blank_from(name))


def _pop_repeated(texts: Mapping[str, str], labels: dict[str, str]) -> dict[str, str]:
    """The texts by column, with the older names of columns and labels. Removes the labels that repeat a column."""
    for newer, older in NEWER_LABELS.items():
        if newer in labels and older not in labels:
            labels[older] = labels.pop(newer)
    labels.pop("__name__", None)
    about = {**texts, "Hostname": texts.get("Hostname") or texts.get("hostname", "")}
    for column, label in _REPEATED.items():
        repeated = labels.pop(label, "")
        about[column] = about.get(column) or repeated
    return about


@lru_cache(maxsize=4096)
def _encode(resource: tuple[tuple[str, AttributeValue], ...]) -> bytes:
    """Encodes a resource. Cached, because all metrics of a GPU have the same resource."""
    return encode_resource(dict(resource))


def _pop_resource(texts: Mapping[str, str], labels: dict[str, str]) -> dict[str, AttributeValue]:
    """The GPU's resource. Removes the labels that become resource attributes."""
    resource = gpu_resource(
        uuid=texts["uuid"],
        index=texts["gpu_id"],
        model=texts["modelName"],
        hostname=texts["Hostname"],
        device=texts["device"],
    )
    for label, attribute in dcgm.LABELS.items():
        resource[attribute] = labels.pop(label, "") or resource.get(attribute, "")
    for column, attribute in dcgm.KUBERNETES.items():
        label = labels.pop(column, "")
        resource[attribute] = texts.get(column) or label
    prefixed = sorted(label for label in labels if label.startswith(dcgm.RESOURCE))
    resource |= _typed({label.removeprefix(dcgm.RESOURCE): labels.pop(label) for label in prefixed})
    return {name: value for name, value in resource.items() if value != ""}


def _pop_measure(name: str, labels: dict[str, str]) -> dcgm.Measure:
    """A metric that is no DCGM field, with type and unit from the labels. Removes these labels."""
    kind, unit = labels.pop(dcgm.TYPE, ""), labels.pop(dcgm.UNIT, "")
    if not (kind or unit) and (implied := dcgm.implied_descriptor(name)):
        return dcgm.Measure(implied)
    return dcgm.Measure(Descriptor(name, unit, dcgm.TYPES.get(kind, "gauge"), DESCRIPTIONS.get(name, "")))


def _typed(labels: Mapping[str, str]) -> dict[str, AttributeValue]:
    return {name: int(text) if name in dcgm.INTEGERS and text.isdecimal() else text for name, text in labels.items()}
