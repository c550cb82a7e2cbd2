"""Remote write 1.0: `prometheus.WriteRequest`, with labels as texts.

https://prometheus.io/docs/specs/prw/remote_write_spec/. Field numbers are those of prompb/remote.proto and types.proto.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from otel_zernel.exposition.remote_write.messages import histogram_message, sample_head, sample_message, sample_tail
from otel_zernel.exposition.remote_write.requests import EncodedWrite
from otel_zernel.exposition.remote_write.series import (
    METRIC_TYPES,
    Entry,
    FamilyMetadata,
    WrittenExemplar,
    WrittenHistogram,
    WrittenSeries,
)
from otel_zernel.exposition.remote_write.wire import double, double_field, number_field, sized, varint

_TIME_SERIES, _METADATA = 1, 3  # of WriteRequest
_LABEL, _EXEMPLAR, _HISTOGRAM = 1, 3, 4  # of TimeSeries
_TIME_SIZE = 7
"""Bytes of the field with a time between 2004 and 2109, in ms."""


class Version1:
    """Encodes entries as `prometheus.WriteRequest`. The labels of a series are encoded once and kept."""

    headers: ClassVar[Mapping[str, str]] = {
        "content-type": "application/x-protobuf",
        "x-prometheus-remote-write-version": "0.1.0",
    }
    reports_written = False

    def __init__(self, *, send_metadata: bool) -> None:
        """If `send_metadata`, each request has the metadata of its metric families."""
        self._send_metadata = send_metadata

    def requests(self, entries: Iterable[Entry], limit: int) -> Iterator[EncodedWrite]:
        """As `Encoding.requests`."""
        parts, taken, size = list[bytes](), list[Entry](), 0
        families: dict[FamilyMetadata, None] = {}
        time_ms, tail = -1, b""
        for entry in entries:
            series, samples = entry
            when, value, _, _, exemplars = samples[0]
            if len(samples) == 1 and not exemplars and not isinstance(value, WrittenHistogram):
                if when != time_ms:
                    time_ms, tail = when, sample_tail(when)
                if len(tail) == _TIME_SIZE:
                    prefix = series.prefix if series.prefix_owner is Version1 else _prefix(series)
                    encoded = prefix + double(value) + tail
                else:
                    encoded = _time_series(entry)
            else:
                encoded = _time_series(entry)
            added = len(encoded)
            if self._send_metadata and series.metadata not in families:
                added += len(_metadata(series.metadata))
            if taken and size + added > limit:
                yield EncodedWrite(taken, b"".join((*parts, *map(_metadata, families))), self)
                parts, taken, size, families = [], [], 0, {}
                added = len(encoded) + (len(_metadata(series.metadata)) if self._send_metadata else 0)
            parts.append(encoded)
            taken.append(entry)
            size += added
            if self._send_metadata:
                families[series.metadata] = None
        if taken:
            yield EncodedWrite(taken, b"".join((*parts, *map(_metadata, families))), self)


def _prefix(series: WrittenSeries) -> bytes:
    """The bytes of a time series with one plain sample, up to its value. They are kept."""
    labels, head = _labels(series.labels), sample_head(0, _TIME_SIZE)
    size = len(labels) + len(head) + 8 + _TIME_SIZE
    series.prefix = varint(_TIME_SERIES << 3 | 2) + varint(size) + labels + head
    series.prefix_owner = Version1
    return series.prefix


def _time_series(entry: Entry) -> bytes:
    series, samples = entry
    parts, exemplars = [_labels(series.labels)], list[WrittenExemplar]()
    for time_ms, value, _, _, more in samples:
        if isinstance(value, WrittenHistogram):
            parts.append(sized(_HISTOGRAM, histogram_message(time_ms, value, 0)))
        else:
            parts.append(sample_message(time_ms, value, 0))
        exemplars += more
    parts += map(_exemplar, sorted(exemplars))
    return sized(_TIME_SERIES, b"".join(parts))


def _labels(labels: tuple[str, ...]) -> bytes:
    return b"".join(
        sized(_LABEL, sized(1, name.encode()) + sized(2, value.encode()))
        for name, value in zip(labels[::2], labels[1::2], strict=True)
    )


def _exemplar(exemplar: WrittenExemplar) -> bytes:
    value = double_field(2, exemplar.value) + number_field(3, exemplar.time_ms)
    return sized(_EXEMPLAR, _labels(exemplar.labels) + value)


def _metadata(family: FamilyMetadata) -> bytes:
    type_ = number_field(1, METRIC_TYPES.get(family.type, 0))
    texts = ((2, family.name), (4, family.help), (5, family.unit))
    return sized(_METADATA, type_ + b"".join(sized(number, text.encode()) for number, text in texts if text))
