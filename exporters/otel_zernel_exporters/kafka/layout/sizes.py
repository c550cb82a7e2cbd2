"""Splits pieces of a batch until each one fits into a message: by resource, scope, metric and point."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from otel_zernel.batch import Signal, split_batch
from otel_zernel.otlp.json import to_json
from otel_zernel_exporters.kafka.layout.pieces import MessagePiece, names
from otel_zernel_libraries.clients.kafka.client_config import Encoding

_MARGIN: Final = 0.9
"""The share of the limit that pieces aim at, since points differ in size."""


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """A piece with the value of its message."""

    piece: MessagePiece
    value: bytes


@dataclass(frozen=True, slots=True)
class OversizedItem:
    """A single point, span or log record that does not fit into a message."""

    signal: Signal
    name: str
    size: int
    """The size of its message in bytes."""

    def __str__(self) -> str:
        noun = {"metrics": "a point of ", "traces": "the span ", "logs": "a log record"}[self.signal]
        return f"{noun}{self.name:.100}".strip()


def encode(piece: MessagePiece, encoding: Encoding) -> EncodedPiece:
    """The piece with its value. Raises `DecodeError` if it has to be read and is not valid."""
    value = piece.encoded if encoding == "otlp_proto" else to_json(piece.batch().message(piece.signal))
    return EncodedPiece(piece, value)


def fitting(piece: MessagePiece, encoding: Encoding, limit: int) -> Iterator[EncodedPiece | OversizedItem]:
    """Pieces whose values have at most `limit` bytes, in order. Raises `DecodeError`."""
    encoded = encode(piece, encoding)
    if len(encoded.value) <= limit:
        yield encoded
        return
    share = _MARGIN * limit / len(encoded.value)
    for part in parts(piece, share):
        if isinstance(part, OversizedItem):
            yield OversizedItem(part.signal, part.name, len(encoded.value))
        else:
            yield from fitting(part, encoding, limit)


def parts(piece: MessagePiece, share: float) -> Iterator[MessagePiece | OversizedItem]:
    """The piece in parts of about this share of its items, at least two. A single item is oversized."""
    batch = piece.batch()
    items = batch.item_count
    if items <= 1:
        if items:
            name = next(names(batch), "")
            yield OversizedItem(piece.signal, name, len(piece.encoded))
        return
    size = max(1, min(math.ceil(items * share), (items + 1) // 2))
    for part in split_batch(batch, size):
        yield MessagePiece(piece.signal, part.bytes_of(piece.signal), piece.topic, piece.key)
