"""Metric families: the series of one name, and their part of the page."""

from dataclasses import dataclass, field

from otel_zernel_libraries.prometheus.formats import Format
from otel_zernel_libraries.prometheus.formats.text import header, sample_lines
from otel_zernel_libraries.prometheus.histograms import BucketLayout
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
