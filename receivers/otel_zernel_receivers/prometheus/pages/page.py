"""The content of a metrics page, whatever its format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MetricType = Literal["counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset", "unknown"]
TYPES: Mapping[str, MetricType] = {
    "counter": "counter",
    "gauge": "gauge",
    "histogram": "histogram",
    "gaugehistogram": "gaugehistogram",
    "summary": "summary",
    "info": "info",
    "stateset": "stateset",
    "unknown": "unknown",
    "untyped": "unknown",
}
"""The types by their names in TYPE lines."""
NAME = "__name__"
"""The label that holds the name of a sample."""

ProtoKey = tuple[str, tuple[bytes, ...], tuple[str, str] | None]
"""The name of a sample in protobuf, its encoded labels, and the label `le` or `quantile`."""
SampleKey = bytes | ProtoKey
"""Identifies a sample from scrape to scrape: in text, the bytes of its name and labels."""
Labels = dict[str, str]
"""Label values by name. The name of the sample is the label `__name__`."""


class NotAPage(ValueError):
    """The answer is no metrics page as a whole. The message is a part of a sentence, for the user."""


@dataclass(frozen=True, slots=True)
class PageFamily:
    """The description of a metric on a page."""

    type: MetricType = "unknown"
    unit: str = ""
    """In the words of Prometheus: `seconds`."""
    help: str = ""


@dataclass(frozen=True, slots=True)
class PageExemplar:
    """An exemplar of a counter or of a bucket."""

    labels: Labels
    value: float
    time_ns: int | None = None
    """Wall clock; None if the page has no time."""


@dataclass(frozen=True, slots=True)
class NativeHistogram:
    """A native histogram, with buckets in the terms of OTLP: bucket 0 of a side has the index `offset`."""

    schema: int
    count: int
    sum: float
    zero_count: int
    zero_threshold: float
    positive: tuple[int, list[int]]
    """The offset and the counts."""
    negative: tuple[int, list[int]]
    created_ns: int = 0
    exemplars: tuple[PageExemplar, ...] = ()


@dataclass(slots=True)
class ScrapedPage:
    """The samples of a page. The other fields refer to samples by their position."""

    keys: list[SampleKey] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """The count for a native histogram."""
    families: Mapping[str, PageFamily] = field(default_factory=dict)
    """By name, as in TYPE lines. The same object as on the last page if nothing changed."""
    times_ns: dict[int, int] = field(default_factory=dict)
    """Times of their own: wall clock, ns."""
    exemplars: dict[int, PageExemplar] = field(default_factory=dict)
    natives: dict[int, NativeHistogram] = field(default_factory=dict)
    malformed: int = 0
    """Lines or metrics that were skipped."""
    problem: str = ""
    """The first of them and its place."""

    def skip(self, problem: str) -> None:
        """Counts a line or metric that cannot be read."""
        self.malformed += 1
        self.problem = self.problem or problem

    def without_blanks(self) -> "ScrapedPage":
        """The page without the samples of DCGM's fields that have no value. The page itself if it has none."""
        if (
            not any(name.startswith("DCGM_") for name in self.families)
            or max(self.values, default=0.0) < _SMALLEST_BLANK
        ):
            return self
        from otel_zernel_libraries.gpu_names.dcgm_blanks import is_blank  # large tables, which only pages of DCGM need

        large = ((at, self.keys[at]) for at, value in enumerate(self.values) if value >= _SMALLEST_BLANK)
        blank = {at for at, key in large if is_blank(_name_of(key), self.values[at])}
        if not blank:
            return self
        kept = [at for at in range(len(self.keys)) if at not in blank]
        places = {at: place for place, at in enumerate(kept)}
        return ScrapedPage(
            [self.keys[at] for at in kept],
            [self.values[at] for at in kept],
            self.families,
            {places[at]: time for at, time in self.times_ns.items() if at in places},
            {places[at]: exemplar for at, exemplar in self.exemplars.items() if at in places},
            {places[at]: native for at, native in self.natives.items() if at in places},
            self.malformed,
            self.problem,
        )


_SMALLEST_BLANK = 2147483632.0


def _name_of(key: SampleKey) -> str:
    """The name of a sample."""
    return key.partition(b"{")[0].strip().decode(errors="replace") if isinstance(key, bytes) else key[0]
