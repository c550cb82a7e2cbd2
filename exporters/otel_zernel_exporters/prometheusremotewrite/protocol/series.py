"""Series as remote write has them: sorted labels, metadata, and samples with timestamps."""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from otel_zernel_libraries.prometheus.histograms import Bounds, ExponentialBuckets
from otel_zernel_libraries.prometheus.histograms.native import Side

STALE: float = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
"""The value of a sample that ends its series (StaleNaN in prometheus/model/value/value.go)."""

_STALE_BYTES = struct.pack("<d", STALE)

METRIC_TYPES = {"unknown": 0, "counter": 1, "gauge": 2, "histogram": 3, "summary": 5, "info": 6}
"""The numbers of `MetricType`, the same in 1.0 and 2.0."""

Labels = tuple[str, ...]
"""Names and values in turn, sorted by name. None is empty."""


class FamilyMetadata(NamedTuple):
    """The metadata of a metric family."""

    name: str
    type: str
    """A key of `METRIC_TYPES`."""
    help: str
    unit: str
    """In words: `seconds`."""


class WrittenExemplar(NamedTuple):
    """An exemplar of a sample."""

    time_ms: int
    value: float
    labels: Labels


@dataclass(frozen=True, slots=True)
class WrittenHistogram:
    """The value of a native histogram."""

    count: int
    total: float
    """NaN if the sum is unknown, `STALE` if the series ends."""
    schema: int | None
    """-4 to 8, or -53 for custom buckets. None: the buckets are too coarse, so that only classic ones are possible."""
    zero_threshold: float
    zero_count: int
    negative: Side
    positive: Side
    bounds: Bounds
    """The bounds of its classic buckets. Those of schema -53 are the same."""
    source: ExponentialBuckets | list[int]
    """The buckets that it was made from; a list has the counts at `bounds`, shape (n + 1,)."""
    has_reset: bool = False
    """Whether the sender has restarted since the sample before."""

    @property
    def totals(self) -> list[int]:
        """The cumulative counts of its classic buckets, shape (n + 1,)."""
        if isinstance(self.source, list):
            return list(accumulate(self.source))
        return self.bounds.totals(self.source)


Exemplars = tuple[WrittenExemplar, ...]
NONE: Exemplars = ()
WrittenSample = tuple[int, float | WrittenHistogram, int, int, Exemplars]
"""The time in ms, the value, the start of counting in ms (0 if unknown), the point's number in its batch, exemplars."""


@dataclass(slots=True, eq=False)
class WrittenSeries:
    """One set of labels."""

    labels: Labels
    metadata: FamilyMetadata
    is_native: bool = False
    """Whether its samples are native histograms."""
    classic: Any = None
    """The `PartedSeries` that has the classic buckets of a native histogram."""
    last_ms: int = 0
    """The time of the newest sample that a server has taken, in ms."""
    used: int = 0
    """The number of the newest batch that has it."""
    prefix: bytes = b""
    """The bytes of a time series before the value of its only sample, kept by the encoding."""
    prefix_owner: object = None
    """The encoding or the table of symbols that made `prefix`."""
    prefix_start: int = 0
    """The start of counting in `prefix`, in ms."""


Entry = tuple[WrittenSeries, list[WrittenSample]]
"""A series and its samples, in the order of time."""


def sorted_pairs(name: str, labels: Mapping[str, str], part: str = "", value: str = "") -> Labels:
    """The labels of a series with the metric's name, and with the label `part` (`le`) if it has a value."""
    pairs = sorted({**labels, part: value, "__name__": name}.items())
    return tuple(text for pair in pairs if pair[1] for text in pair)


def recorded(value: float) -> float:
    """A measured value. Each NaN becomes the usual one: only `STALE` may end a series."""
    return value if value == value else math.nan


def is_stale(value: float) -> bool:
    """Whether this is `STALE`, and not another NaN."""
    return value != value and struct.pack("<d", value) == _STALE_BYTES


class SeriesTable:
    """All series in use, by their labels. Two streams with the same labels share a series."""

    def __init__(self) -> None:
        self.batch = 0
        """The number of the current batch."""
        self._floats: dict[Labels, WrittenSeries] = {}
        self._natives: dict[Labels, WrittenSeries] = {}

    def __len__(self) -> int:
        return len(self._floats) + len(self._natives)

    def find(self, labels: Labels, metadata: FamilyMetadata, *, native: bool = False) -> WrittenSeries:
        """The series with these labels, created if it is new."""
        known = self._natives if native else self._floats
        series = known.get(labels)
        if series is None:
            series = known[labels] = WrittenSeries(labels, metadata, native)
        elif series.metadata != metadata:
            series.metadata, series.prefix_owner = metadata, None
        return series

    def float_twin(self, series: WrittenSeries) -> WrittenSeries | None:
        """The series of numbers with the labels of a native histogram."""
        return self._floats.get(series.labels)

    def forget(self, before: int) -> None:
        """Forgets the series that no batch has used since the number `before`."""
        for known in (self._floats, self._natives):
            for labels in [labels for labels, series in known.items() if series.used < before]:
                del known[labels]


class Writes:
    """The samples of one batch, by series."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.samples: dict[WrittenSeries, list[WrittenSample]] = {}

    def add(self, series: WrittenSeries, sample: WrittenSample) -> None:
        known = self.samples.get(series)
        if known is None:
            self.samples[series] = [sample]
            series.used = self.batch
        else:
            known.append(sample)

    def remove_twins(self, table: SeriesTable) -> int:
        """Removes native histograms with the labels of numbers in the batch. Returns the number of their samples."""
        samples = self.samples
        twins = [sample for sample in samples if sample.is_native and table.float_twin(sample) in samples]
        return sum(len(self.samples.pop(series)) for series in twins)

    def put_in_order(self) -> int:
        """Sorts the samples of each series, and keeps the last one of each time. Returns how many are left out."""
        lost = 0
        for series, samples in self.samples.items():
            if len(samples) > 1:
                by_time = {sample[0]: sample for sample in samples}
                lost += len(samples) - len(by_time)
                self.samples[series] = [by_time[time_ms] for time_ms in sorted(by_time)]
        return lost
