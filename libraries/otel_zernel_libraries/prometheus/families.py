"""The metric families of a page, and the names that they own."""

from collections.abc import Collection
from dataclasses import dataclass, field

from otel_zernel_libraries.prometheus.formats import Format
from otel_zernel_libraries.prometheus.formats.text import header, sample_lines
from otel_zernel_libraries.prometheus.histograms import BucketLayout
from otel_zernel_libraries.prometheus.options import Options
from otel_zernel_libraries.prometheus.series import ExposedSeries
from otel_zernel_libraries.prometheus.stream import FamilyType, MetricStream


@dataclass(slots=True, eq=False)
class MetricFamily:
    """The series of one name."""

    name: str
    family_type: FamilyType
    unit: str
    help: str
    is_described: bool
    """Whether `help` is the description of a metric. Else it was made from the metric's name."""
    sample_names: tuple[str, ...]
    """The name itself, and the name with the suffixes of its type: `_bucket`, `_count`, `_sum`."""
    layout: BucketLayout
    """The bounds of its histograms."""
    series: dict[str, ExposedSeries] = field(default_factory=dict)
    """By label text."""
    collision_logged: bool = False
    """Whether a collision of two series was logged."""

    def add_series(self, stream: MetricStream, labels: str, identity: bytes) -> ExposedSeries:
        """A new series with these labels, for points of the stream."""
        self.series[labels] = series = stream.series_type(self.name, labels, identity, stream.series, self.layout)
        return series

    def describe(self, stream: MetricStream) -> None:
        """Takes the stream's description if the family has none."""
        if stream.is_described and not self.is_described:
            self.help, self.is_described = stream.help, True

    def text(self, format_: Format, *, clashes: bool, send_timestamps: bool) -> list[str]:
        """Its comments and lines.

        OpenMetrics removes `_total` from a counter's name. If the name does not end in `_total`, or another family has
        the shorter name (`clashes`), the type is `unknown` in OpenMetrics.
        """
        name, type_ = self.name, str(self.family_type)
        if format_.openmetrics and type_ == "counter":
            shorter = name.removesuffix("_total")
            name, type_ = (name, "unknown") if shorter == name or clashes else (shorter, type_)
        lines = sample_lines(self.series.values(), self.family_type, format_, send_timestamps=send_timestamps)
        return [header(name, type_, self.help, self.unit, format_), *lines]

    def messages(self, *, send_timestamps: bool, native: bool) -> bytes:
        """Its messages in the protobuf format."""
        from otel_zernel_libraries.prometheus.formats.protobuf import family_messages  # only if a scraper requests it

        return family_messages(
            *(self.name, self.family_type, self.help, self.unit, self.series.values()),
            send_timestamps=send_timestamps,
            native=native,
        )


TARGET_INFO = "target_info"
"""The family of the targets' metadata. No metric may use this name."""


class MetricFamilies:
    """The families of a page.

    Two families must not share a sample name: a summary `a` owns `a`, `a_count` and `a_sum`. A family without series
    gives its names up to the next family that needs them.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.by_name: dict[str, MetricFamily] = {}
        self.by_sample_name: dict[str, MetricFamily] = {}

    def values(self) -> Collection[MetricFamily]:
        """The families, in the order of their creation."""
        return self.by_name.values()

    def family_of(self, stream: MetricStream) -> MetricFamily | None:
        """The family of a stream, created if it is new. None if its name belongs to another type or unit."""
        family = self.by_name.get(stream.name)
        if family is None or not family.series:
            return self._create(stream)
        if family.family_type != stream.family_type or (family.unit and stream.unit and family.unit != stream.unit):
            return None
        family.describe(stream)
        return family

    def remove(self, family: MetricFamily) -> None:
        del self.by_name[family.name]
        for name in family.sample_names:
            del self.by_sample_name[name]

    def has_clash(self, family: MetricFamily) -> bool:
        """Whether the family's name without `_total` is a sample name of another family that has series."""
        second = self.by_sample_name.get(family.name.removesuffix("_total"))
        return second is not None and second is not family and bool(second.series)

    def _create(self, stream: MetricStream) -> MetricFamily | None:
        sample_names = tuple(stream.name + suffix for suffix in stream.series_type.suffixes)
        if TARGET_INFO in sample_names or any(self._is_in_use(name) for name in sample_names):
            return None
        for name in sample_names:
            if name in self.by_sample_name:
                self.remove(self.by_sample_name[name])
        family = MetricFamily(
            *(stream.name, stream.family_type, stream.unit, stream.help, stream.is_described, sample_names),
            BucketLayout(self._options.bounds_of(stream.metric_name, stream.metric_unit)),
        )
        self.by_name[stream.name] = family
        self.by_sample_name.update(dict.fromkeys(sample_names, family))
        return family

    def _is_in_use(self, sample_name: str) -> bool:
        owner = self.by_sample_name.get(sample_name)
        return owner is not None and bool(owner.series)
