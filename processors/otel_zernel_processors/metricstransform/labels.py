"""Labels: the attributes of data points."""

from collections.abc import Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from otel_zernel_libraries.repeated_fields import keep_only


def find(point: Any, label: str) -> KeyValue | None:
    """The label of a data point; None if it is missing."""
    return next((pair for pair in point.attributes if pair.key == label), None)


def put(point: Any, labels: Mapping[str, str]) -> None:
    """Adds labels, and replaces existing ones."""
    for label, value in labels.items():
        pair = find(point, label)
        if pair is None:
            pair = point.attributes.add(key=label)
        pair.value.Clear()
        pair.value.string_value = value


def rename(point: Any, label: str, new_label: str, values: Mapping[str, str]) -> None:
    """Renames a label, if a new name is given, and replaces its value, if it is one of `values`."""
    pair = find(point, label)
    if pair is None:
        return
    if pair.value.HasField("string_value") and pair.value.string_value in values:
        pair.value.string_value = values[pair.value.string_value]
    if new_label and new_label != label:
        keep_only(point.attributes, lambda pair: pair.key != new_label)
        renamed = find(point, label)  # removing may have moved it
        if renamed is not None:
            renamed.key = new_label
