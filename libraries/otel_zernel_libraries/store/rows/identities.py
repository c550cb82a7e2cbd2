"""Fingerprints: 128-bit hashes by which the store finds a resource, a scope or a series again."""

import struct
from collections.abc import Iterable
from hashlib import blake2b

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

FINGERPRINT_BYTES = 16
_LENGTH = struct.Struct("<I")


def fingerprint(*parts: bytes) -> bytes:
    """The hash of the parts. Each is preceded by its length, so that no two lists of parts look alike."""
    whole = blake2b(digest_size=FINGERPRINT_BYTES)
    for part in parts:
        whole.update(_LENGTH.pack(len(part)))
        whole.update(part)
    return whole.digest()


def canonical(attributes: Iterable[KeyValue]) -> bytes:
    """The attributes as bytes that do not depend on their order. Maps in them have no order either."""
    return b"".join(sorted(map(_pair, attributes)))


def _pair(pair: KeyValue) -> bytes:
    return _framed(pair.key.encode()) + _framed(_value(pair.value))


def _value(value: AnyValue) -> bytes:
    """Nested values begin with a letter that begins no encoded scalar."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return b"a" + b"".join(_framed(_value(item)) for item in value.array_value.values)
    if kind == "kvlist_value":
        return b"m" + canonical(value.kvlist_value.values)
    return value.SerializeToString()


def _framed(part: bytes) -> bytes:
    return _LENGTH.pack(len(part)) + part
