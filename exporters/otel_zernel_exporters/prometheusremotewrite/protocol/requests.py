"""Requests of remote write: entries in pieces of limited size, encoded by a version of the protocol."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from otel_zernel_exporters.prometheusremotewrite.protocol.series import Entry
from otel_zernel_exporters.prometheusremotewrite.protocol.table import Table

_SAMPLE_BYTES = 2048
"""Bytes that a sample takes at most, but for histograms of more than 500 buckets. It decides how many samples of one
series go into one request."""

_MOST_ENTRIES = 10_000
"""Series of one request. Servers recommend no more: they hold all samples of a request at once."""


@dataclass(frozen=True, slots=True)
class EncodedWrite:
    """A request before its compression."""

    entries: Sequence[Entry]
    body: bytes
    encoding: "Encoding"

    @property
    def sample_counts(self) -> tuple[int, int, int]:
        """The number of samples with a number, of histograms, and of exemplars."""
        counts: Counter[str] = Counter()
        for series, samples in self.entries:
            counts["histograms" if series.is_native else "samples"] += len(samples)
            counts["exemplars"] += sum(len(sample[4]) for sample in samples)
        return counts["samples"], counts["histograms"], counts["exemplars"]

    def delivered(self) -> None:
        """Notes that a server has taken all samples."""
        for series, samples in self.entries:
            series.last_ms = max(series.last_ms, samples[-1][0])


class Encoding(ABC):
    """A version of the protocol. Bytes of known series are kept for the next request. Not for several threads."""

    headers: ClassVar[Mapping[str, str]]
    """The content type and the version."""
    reports_written: ClassVar[bool]
    """Whether servers answer with the numbers of written samples, and keep the good ones of a rejected request."""

    def __init__(self) -> None:
        self._table = self.new_table()

    @abstractmethod
    def new_table(self) -> Table:
        """A table without series."""

    def requests(self, entries: Iterable[Entry], limit: int) -> Iterator[EncodedWrite]:
        """The entries as requests of at most `limit` bytes and 10,000 series each.

        An entry that is larger has a request of its own.
        """
        table, parts, taken, size = self._table, list[bytes](), list[Entry](), 0
        for entry in entries:
            known = len(table.fields)
            encoded = table.encode(entry)
            if taken and (len(taken) >= _MOST_ENTRIES or size + len(encoded) + table.size > limit):
                yield EncodedWrite(taken, b"".join((*table.fields[:known], *parts)), self)
                table, parts, taken, size = self.new_table(), [], [], 0
                encoded = table.encode(entry)
            parts.append(encoded)
            taken.append(entry)
            size += len(encoded)
        if taken:
            yield EncodedWrite(taken, b"".join((*table.fields, *parts)), self)
        self._table = self.new_table() if table.is_worn(len(taken)) else table


def in_waves(entries: Sequence[Entry], limit: int) -> list[list[Entry]]:
    """The entries in waves, to be sent one after another: a series with many samples is in several of them.

    So requests of one wave may be sent at the same time, and each series is in the order of time.
    """
    most = max(1, limit // _SAMPLE_BYTES)
    longest = max((len(samples) for _, samples in entries), default=0)
    if longest <= most:
        return [list(entries)] if entries else []
    return [
        [(series, samples[start : start + most]) for series, samples in entries if len(samples) > start]
        for start in range(0, longest, most)
    ]
