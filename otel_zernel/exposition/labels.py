"""Labels as text: attribute values spelled, escaped, sorted and joined."""

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_zernel.exposition.names import Naming, is_classic_label, is_classic_name

Labelled = tuple[str, str, str]
"""An attribute on its way to a label: its own name, the label's, and the value."""


def spell(value: float) -> str:
    """A number as Prometheus reads it."""
    if math.isfinite(value):
        return repr(value)
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def escape(text: str, *, quotes: bool = True) -> str:
    """The inside of a quoted string, or of a HELP comment, where the older format leaves `quotes` alone."""
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quotes else escaped


def value_text(value: AnyValue) -> str:
    """An attribute's value as a label's: strings as they are, bytes in base64, what has parts as JSON."""
    plain = _plain(value)
    if isinstance(plain, str):
        return plain
    if isinstance(plain, float) and not isinstance(plain, bool):
        return spell(plain).removesuffix(".0")
    return "" if plain is None else json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: _plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind else None


def labelled(attributes: Iterable[KeyValue], naming: Naming, prefix: str = "") -> list[Labelled]:
    """The attributes, `prefix` in front of their names, with their labels. An empty value is no label to Prometheus."""
    named = ((prefix + pair.key, naming.label(prefix + pair.key), value_text(pair.value)) for pair in attributes)
    return [one for one in named if one[2]]


def joined(attributes: Iterable[Labelled]) -> dict[str, str]:
    """Label values by name. Attributes of one label join theirs by `;`, in the order of the attributes' names."""
    labels: dict[str, str] = {}
    for _, name, value in sorted(attributes):
        labels[name] = f"{labels[name]};{value}" if name in labels else value
    return labels


def label_text(labels: Mapping[str, str]) -> str:
    """The labels as they stand between braces, sorted by name."""
    return ",".join(f'{_quoted_label(name)}="{escape(value)}"' for name, value in sorted(labels.items()) if value)


def sample(name: str, labels: str, extra: str = "") -> str:
    """A line up to its value. A name beyond the classic characters moves into the braces."""
    outside, inside = (name, "") if is_classic_name(name) else ("", quoted_name(name))
    between = ",".join(filter(None, (inside, labels, extra)))
    return f"{outside}{{{between}}} " if between else f"{outside} "


def quoted_name(name: str) -> str:
    """A metric's name, in quotes if it has more than the classic characters."""
    return name if is_classic_name(name) else f'"{escape(name)}"'


def _quoted_label(name: str) -> str:
    return name if is_classic_label(name) else f'"{escape(name)}"'
