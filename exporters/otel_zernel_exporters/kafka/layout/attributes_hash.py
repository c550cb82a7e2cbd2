"""The hash of resource attributes that the OpenTelemetry Collector uses as the key of a message.

https://github.com/open-telemetry/opentelemetry-collector-contrib/blob/main/pkg/pdatautil/hash.go
"""

import struct
from collections.abc import Iterable
from typing import Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

_SECOND_HALF: Final = b"\xf3"
_KEY: Final = b"\xf4"
_EMPTY: Final = b"\xf5"
_BYTES: Final = b"\xf6"
_STRING: Final = b"\xf7"
_TRUE: Final = b"\xf8"
_FALSE: Final = b"\xf9"
_INTEGER: Final = b"\xfa"
_DOUBLE: Final = b"\xfb"
_MAP, _MAP_END = b"\xfc", b"\xfd"
_ARRAY, _ARRAY_END = b"\xfe", b"\xff"


def attributes_hash(attributes: Iterable[KeyValue]) -> bytes:
    """16 bytes: two xxHash64 in little-endian order. They do not depend on the order of the attributes."""
    from xxhash import xxh64_intdigest  # an optional package

    text = _map(attributes)
    if not text:
        return bytes(16)
    return struct.pack("<QQ", xxh64_intdigest(text), xxh64_intdigest(text + _SECOND_HALF))


def _map(attributes: Iterable[KeyValue]) -> bytes:
    """The attributes in the order of their names. Of two with the same name, the value of the first counts twice."""
    names: list[str] = []
    values: dict[str, AnyValue] = {}
    for one in attributes:
        names.append(one.key)
        values.setdefault(one.key, one.value)
    return b"".join(_KEY + name.encode() + _value(values[name]) for name in sorted(names))


def _value(value: AnyValue) -> bytes:
    match value.WhichOneof("value"):
        case "string_value":
            return _STRING + value.string_value.encode()
        case "bool_value":
            return _TRUE if value.bool_value else _FALSE
        case "int_value":
            return _INTEGER + struct.pack("<q", value.int_value)
        case "double_value":
            return _DOUBLE + struct.pack("<d", value.double_value)
        case "bytes_value":
            return _BYTES + value.bytes_value
        case "kvlist_value":
            return _MAP + _map(value.kvlist_value.values) + _MAP_END
        case "array_value":
            return _ARRAY + b"".join(map(_value, value.array_value.values)) + _ARRAY_END
        case _:
            return _EMPTY
