"""Writes the texts of a dictionary into the resources of profiles."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from otel_zernel.batch import Batch
from otel_zernel.batch.resources import editable_holders_of, holders_of

MAX_WRITTEN: Final = 1 << 20
"""Characters of texts that `write_texts` copies for one batch. A short request can name one long text many times."""


def write_texts(batch: Batch) -> None:
    """Writes the texts of attributes into the resources of profiles. Senders may have them in the dictionary, and only
    their numbers in the resource. If they are longer than `MAX_WRITTEN` together, the
    numbers stay."""
    if "profiles" not in batch.signals:
        return
    numbers = Counter(_numbers(_pairs(holders_of(batch, "profiles"))))
    texts = batch.profiles.dictionary.string_table
    if not numbers or sum(count * len(_text(texts, number)) for number, count in numbers.items()) > MAX_WRITTEN:
        return
    for pair in _pairs(editable_holders_of(batch, "profiles")):
        _write_pair(pair, texts)


def _pairs(holders: Sequence[Any]) -> list[KeyValue]:
    return [pair for holder in holders for pair in holder.resource.attributes]


def _numbers(pairs: Iterable[KeyValue]) -> Iterator[int]:
    for pair in pairs:
        if pair.key_strindex:
            yield pair.key_strindex
        yield from _numbers_in(pair.value)


def _numbers_in(value: AnyValue) -> Iterator[int]:
    match value.WhichOneof("value"):
        case "string_value_strindex":
            yield value.string_value_strindex
        case "array_value":
            for inner in value.array_value.values:
                yield from _numbers_in(inner)
        case "kvlist_value":
            yield from _numbers(value.kvlist_value.values)


def _write_pair(pair: KeyValue, texts: Sequence[str]) -> None:
    if pair.key_strindex:
        pair.key = _text(texts, pair.key_strindex)
        pair.ClearField("key_strindex")
    _write_value(pair.value, texts)


def _write_value(value: AnyValue, texts: Sequence[str]) -> None:
    match value.WhichOneof("value"):
        case "string_value_strindex":
            value.string_value = _text(texts, value.string_value_strindex)
        case "array_value":
            for inner in value.array_value.values:
                _write_value(inner, texts)
        case "kvlist_value":
            for pair in value.kvlist_value.values:
                _write_pair(pair, texts)


def _text(texts: Sequence[str], number: int) -> str:
    """The text with this number; empty if there is none."""
    return texts[number] if 0 <= number < len(texts) else ""
