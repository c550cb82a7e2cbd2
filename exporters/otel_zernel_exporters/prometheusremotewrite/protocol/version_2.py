"""Remote write 2.0: `io.prometheus.write.v2.Request`, with labels as references to a table of symbols.

https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/, release candidate 4: a sample has its start timestamp.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from otel_zernel.protobuf import delimited, encode_field, varint
from otel_zernel_exporters.prometheusremotewrite.protocol.requests import Encoding
from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    METRIC_TYPES,
    FamilyMetadata,
    Labels,
    WrittenSeries,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.table import Table
from otel_zernel_exporters.prometheusremotewrite.protocol.wire import packed

_SYMBOL = 4  # of Request
_LABEL_REFS, _METADATA = 1, 5  # of TimeSeries


class _Symbols(Table):
    """The fields are the symbols. They serve one request after another, while these have mostly the same series."""

    time_series, histogram, exemplar, has_starts = 5, 3, 4, True

    def __init__(self) -> None:
        super().__init__()
        self._numbers = {"": 0}
        self.add(delimited(_SYMBOL, b""))
        self._series: set[WrittenSeries] = set()
        """Those whose labels are in the table."""
        self._first_size = 0
        """The size after the first request."""

    def is_worn(self, series: int) -> bool:
        """Whether many symbols are not in use any more."""
        self._first_size = self._first_size or self.size
        return len(self._series) > 2 * series or self.size > 1.25 * self._first_size

    def head(self, series: WrittenSeries) -> bytes:
        self._series.add(series)
        return self.labels(series.labels) + self._metadata(series.metadata)

    def labels(self, labels: Labels) -> bytes:
        return packed(_LABEL_REFS, self._refs(labels))  # the number is the same in TimeSeries and in Exemplar

    def _metadata(self, family: FamilyMetadata) -> bytes:
        help_, unit = self._refs((family.help, family.unit))
        type_ = encode_field(1, METRIC_TYPES.get(family.type, 0))
        return delimited(_METADATA, type_ + b"\x18" + help_ + b"\x20" + unit)

    def _refs(self, texts: Iterable[str]) -> Iterator[bytes]:
        """The numbers of these symbols, which are added if they are new."""
        numbers = self._numbers
        for text in texts:
            number = numbers.get(text)
            if number is None:
                number = numbers[text] = len(self.fields)
                self.add(delimited(_SYMBOL, text.encode()))
            yield varint(number)


class Version2(Encoding):
    """Encodes entries as `io.prometheus.write.v2.Request`."""

    headers: ClassVar[Mapping[str, str]] = {
        "content-type": "application/x-protobuf;proto=io.prometheus.write.v2.Request",
        "x-prometheus-remote-write-version": "2.0.0",
    }
    reports_written = True

    def new_table(self) -> Table:
        return _Symbols()
