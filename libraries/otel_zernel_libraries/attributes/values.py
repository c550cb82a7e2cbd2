"""The values of attributes as Python's own types."""

from collections.abc import Callable

from opentelemetry.proto.common.v1.common_pb2 import AnyValue

PlainValue = str | bool | int | float | list["PlainValue"] | dict[str, "PlainValue"] | None


def plain_value(value: AnyValue, encode: Callable[[bytes], str]) -> PlainValue:
    """The value as Python's own types; `encode` makes text of bytes. None if it is not set."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain_value(item, encode) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain_value(pair.value, encode) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return encode(value.bytes_value)
    return getattr(value, kind) if kind else None
