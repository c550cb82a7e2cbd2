"""Attributes as JSON, for queries. The exact attributes are in the column `encoded`."""

import json
import math
from base64 import b64encode
from collections.abc import Iterable
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue


def json_attributes(attributes: Iterable[KeyValue]) -> str:
    """A JSON object. Bytes are base64, NaN and the infinities are text, and the first of equal keys counts."""
    return json.dumps(plain_attributes(attributes), ensure_ascii=False, separators=(",", ":"))


def json_text(text: str) -> str:
    """The text without NUL, which PostgreSQL stores nowhere."""
    return text.replace("\0", "\ufffd") if "\0" in text else text


def plain_attributes(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    """The same as values of Python."""
    found: dict[str, Any] = {}
    for pair in attributes:
        found.setdefault(json_text(pair.key), _plain(pair.value))
    return found


def _plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "string_value":
        return json_text(value.string_value)
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return plain_attributes(value.kvlist_value.values)
    if kind == "bytes_value":
        return b64encode(value.bytes_value).decode()
    if kind == "double_value" and not math.isfinite(value.double_value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value.double_value, "NaN")
    return getattr(value, kind) if kind else None
