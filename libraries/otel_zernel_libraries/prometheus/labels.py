"""Labels as text: attribute values are formatted, escaped, sorted and joined."""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_zernel_libraries.attributes.values import plain_value
from otel_zernel_libraries.prometheus.names import Naming, is_classic_label, is_classic_name


class Label(NamedTuple):
    """A label, and the attribute that it was made from."""

    attribute: str
    name: str
    value: str


def number_text(value: float) -> str:
    """A number as the exposition formats write it."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def escape(text: str, *, quotes: bool = True) -> str:
    """The inside of a quoted string, or of a HELP comment.

    In HELP comments of the Prometheus text format, quotes are not escaped: pass `quotes=False`.
    """
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quotes else escaped


def value_text(value: AnyValue) -> str:
    """An attribute's value as a label value: strings unchanged, bytes as base64, arrays and maps as JSON."""
    plain = plain_value(value, _base64)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, float) and not isinstance(plain, bool):
        return number_text(plain).removesuffix(".0")
    return "" if plain is None else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def labels_of(attributes: Iterable[KeyValue], naming: Naming, prefix: str = "") -> list[Label]:
    """The labels of attributes, whose names get `prefix` first. Empty values are omitted: Prometheus ignores them."""
    labels = (
        Label(prefix + attribute.key, naming.label(prefix + attribute.key), value_text(attribute.value))
        for attribute in attributes
    )
    return [label for label in labels if label.value]


def values_by_name(labels: Iterable[Label]) -> dict[str, str]:
    """Label values by label name.

    If several attributes have the same label name, their values are joined by `;`, in the order of attribute names.
    """
    values: dict[str, str] = {}
    for _, name, value in sorted(labels):
        values[name] = f"{values[name]};{value}" if name in values else value
    return values


def label_text(labels: Mapping[str, str]) -> str:
    """The text between the braces: non-empty labels, sorted by name."""
    return ",".join(f'{_quoted_label(name)}="{escape(value)}"' for name, value in sorted(labels.items()) if value)


def sample_prefix(name: str, labels: str, extra_label: str = "") -> str:
    """A sample's line up to its value. A name with other than classic characters is written inside the braces."""
    outside, inside = (name, "") if is_classic_name(name) else ("", quoted_name(name))
    between = ",".join(filter(None, (inside, labels, extra_label)))
    return f"{outside}{{{between}}} " if between else f"{outside} "


def quoted_name(name: str) -> str:
    """A metric's name, in quotes if it has other than classic characters."""
    return name if is_classic_name(name) else f'"{escape(name)}"'


def _quoted_label(name: str) -> str:
    return name if is_classic_label(name) else f'"{escape(name)}"'
