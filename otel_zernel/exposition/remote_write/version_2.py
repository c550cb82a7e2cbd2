"""Remote write 2.0: `io.prometheus.write.v2.Request`, with labels as references to a table of symbols.

https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/, release candidate 4: a sample has its start timestamp.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from otel_zernel.exposition.remote_write.messages import (
    HISTOGRAM,
    histogram_message,
    sample_head,
    sample_message,
    sample_tail,
)
from otel_zernel.exposition.remote_write.requests import EncodedWrite
from otel_zernel.exposition.remote_write.series import (
    METRIC_TYPES,
    Entry,
    FamilyMetadata,
    WrittenExemplar,
    WrittenHistogram,
    WrittenSeries,
)
from otel_zernel.exposition.remote_write.wire import double, double_field, number_field, packed, sized, varint

_SYMBOL, _TIME_SERIES = 4, 5  # of Request
_LABEL_REFS, _EXEMPLAR, _METADATA = 1, 4, 5  # of TimeSeries
_TIME_SIZE = 7
"""Bytes of the field with a time between 2004 and 2109, in ms."""


class _Symbols:
    """A table of symbols. It serves one request after another, as long as these have mostly the same series."""

    def __init__(self) -> None:
        self.numbers = {"": 0}
        self.encoded = [sized(_SYMBOL, b"")]
        self.size = len(self.encoded[0])
        self.series = 0
        """The number of series whose labels are in the table."""
        self._first_size = 0
        """The size after the first request."""

    def is_worn(self, series: int) -> bool:
        """Whether many symbols are not in use any more, after a request with so many series."""
        self._first_size = self._first_size or self.size
        return self.series > 2 * series or self.size > 1.25 * self._first_size

    def refs(self, texts: Iterable[str]) -> Iterator[bytes]:
        """The numbers of these symbols, which are added if they are new."""
        numbers = self.numbers
        for text in texts:
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = len(self.encoded)
                self.encoded.append(sized(_SYMBOL, text.encode()))
                self.size += len(self.encoded[-1])
            yield varint(number)

    def describe(self, family: FamilyMetadata) -> bytes:
        """The metadata of a time series."""
        help_, unit = self.refs((family.help, family.unit))
        type_ = number_field(1, METRIC_TYPES.get(family.type, 0))
        return sized(_METADATA, type_ + b"\x18" + help_ + b"\x20" + unit)


class Version2:
    """Encodes entries as `io.prometheus.write.v2.Request`. The references of a series are encoded once and kept."""

    headers: ClassVar[Mapping[str, str]] = {
        "content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        "x-prometheus-remote-write-version": "2.0.0",
    }
    reports_written = True

    def __init__(self) -> None:
        self._symbols = _Symbols()

    def requests(self, entries: Iterable[Entry], limit: int) -> Iterator[EncodedWrite]:
        """As `Encoding.requests`."""
        symbols = self._symbols
        parts, taken, size = list[bytes](), list[Entry](), 0
        time_ms, tail = -1, b""
        for entry in entries:
            series, samples = entry
            when, value, start_ms, _, exemplars = samples[0]
            known = len(symbols.encoded)
            if when != time_ms:
                time_ms, tail = when, sample_tail(when)
            is_plain = len(samples) == 1 and not exemplars and not isinstance(value, WrittenHistogram)
            if is_plain and len(tail) == _TIME_SIZE:
                is_kept = series.prefix_owner is symbols and series.prefix_start == start_ms
                encoded = (series.prefix if is_kept else _prefix(series, symbols, start_ms)) + double(value) + tail
            else:
                encoded = _time_series(entry, symbols)
            if taken and size + len(encoded) + symbols.size > limit:
                yield EncodedWrite(taken, b"".join((*symbols.encoded[:known], *parts)), self)
                symbols = self._symbols = _Symbols()
                parts, taken, size = [], [], 0
                encoded = _time_series(entry, symbols)
            parts.append(encoded)
            taken.append(entry)
            size += len(encoded)
        if taken:
            yield EncodedWrite(taken, b"".join((*symbols.encoded, *parts)), self)
        if symbols.is_worn(len(taken)):
            self._symbols = _Symbols()


def _prefix(series: WrittenSeries, symbols: _Symbols, start_ms: int) -> bytes:
    """The bytes of a time series with one plain sample, up to its value. They are kept."""
    if series.prefix_owner is not symbols:
        symbols.series += 1
    head = _head(series, symbols)
    sample = sample_head(start_ms, _TIME_SIZE)
    size = len(head) + len(sample) + 8 + _TIME_SIZE
    series.prefix = varint(_TIME_SERIES << 3 | 2) + varint(size) + head + sample
    series.prefix_owner, series.prefix_start = symbols, start_ms
    return series.prefix


def _head(series: WrittenSeries, symbols: _Symbols) -> bytes:
    return packed(_LABEL_REFS, symbols.refs(series.labels)) + symbols.describe(series.metadata)


def _time_series(entry: Entry, symbols: _Symbols) -> bytes:
    series, samples = entry
    parts, exemplars = [_head(series, symbols)], list[WrittenExemplar]()
    symbols.series += 1
    for time_ms, value, start_ms, _, more in samples:
        if isinstance(value, WrittenHistogram):
            parts.append(sized(HISTOGRAM, histogram_message(time_ms, value, start_ms)))
        else:
            parts.append(sample_message(time_ms, value, start_ms))
        exemplars += more
    parts += (_exemplar(one, symbols) for one in sorted(exemplars))
    return sized(_TIME_SERIES, b"".join(parts))


def _exemplar(exemplar: WrittenExemplar, symbols: _Symbols) -> bytes:
    value = double_field(2, exemplar.value) + number_field(3, exemplar.time_ms)
    return sized(_EXEMPLAR, packed(1, symbols.refs(exemplar.labels)) + value)
