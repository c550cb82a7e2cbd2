"""Remote write 1.0: `prometheus.WriteRequest`, with labels as texts.

https://prometheus.io/docs/specs/prw/remote_write_spec/. Field numbers are those of prompb/remote.proto and types.proto.
"""

from collections.abc import Mapping
from typing import ClassVar

from otel_zernel.protobuf import delimited, encode_field
from otel_zernel_exporters.prometheusremotewrite.protocol.requests import Encoding
from otel_zernel_exporters.prometheusremotewrite.protocol.series import (
    METRIC_TYPES,
    Entry,
    FamilyMetadata,
    Labels,
    WrittenSeries,
)
from otel_zernel_exporters.prometheusremotewrite.protocol.table import Table

_METADATA = 3  # of WriteRequest
_LABEL = 1  # of TimeSeries


class _Texts(Table):
    """Labels as texts, without fields."""

    time_series, histogram, exemplar, has_starts = 1, 4, 3, False

    def __init__(self) -> None:
        super().__init__()
        self.owner = _Texts  # labels are the same in every table

    def is_worn(self, series: int) -> bool:
        return False

    def head(self, series: WrittenSeries) -> bytes:
        return self.labels(series.labels)

    def labels(self, labels: Labels) -> bytes:
        return b"".join(
            delimited(_LABEL, delimited(1, name.encode()) + delimited(2, value.encode()))
            for name, value in zip(labels[::2], labels[1::2], strict=True)
        )


class _TextsAndMetadata(_Texts):
    """The fields are the metadata of the metric families of one request."""

    def __init__(self) -> None:
        super().__init__()
        self._families: set[FamilyMetadata] = set()

    def is_worn(self, series: int) -> bool:
        return True

    def encode(self, entry: Entry) -> bytes:
        if entry[0].metadata not in self._families:
            self._families.add(entry[0].metadata)
            self.add(_metadata(entry[0].metadata))
        return super().encode(entry)


class Version1(Encoding):
    """Encodes entries as `prometheus.WriteRequest`."""

    headers: ClassVar[Mapping[str, str]] = {
        "content-type": "application/x-protobuf",
        "x-prometheus-remote-write-version": "0.1.0",
    }
    reports_written = False

    def __init__(self, *, send_metadata: bool) -> None:
        """If `send_metadata`, each request has the metadata of its metric families."""
        self._send_metadata = send_metadata
        super().__init__()

    def new_table(self) -> Table:
        return _TextsAndMetadata() if self._send_metadata else _Texts()


def _metadata(family: FamilyMetadata) -> bytes:
    type_ = encode_field(1, METRIC_TYPES.get(family.type, 0))
    texts = ((2, family.name), (4, family.help), (5, family.unit))
    return delimited(_METADATA, type_ + b"".join(delimited(number, text.encode()) for number, text in texts if text))
