"""Metric families: the series of one name, and their lines of the page."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel.exposition.formats import Format
from otel_zernel.exposition.labels import escape, label_text, number_text, quoted_name, value_text
from otel_zernel.exposition.names import classic_label
from otel_zernel.exposition.series import ExposedSeries, NumberSeries, exemplar_value
from otel_zernel.exposition.stream import FamilyType

_MAX_EXEMPLAR_LABELS = 128
"""Characters. The most that the labels of an exemplar may have together (OpenMetrics 1.0, "Exemplars")."""


@dataclass(slots=True, eq=False)
class MetricFamily:
    """The series of one name."""

    name: str
    family_type: FamilyType
    unit: str
    help: str
    sample_names: tuple[str, ...]
    """The name itself, and the name with the suffixes of its type: `_bucket`, `_count`, `_sum`."""
    series: dict[str, ExposedSeries] = field(default_factory=dict)
    """By label text."""
    collision_logged: bool = False
    """Whether a collision of two series was logged."""

    def header(self, format_: Format, *, clashes: bool) -> str:
        """The comments above the samples.

        OpenMetrics removes `_total` from a counter's name. If the name does not end in `_total`, or another family has
        the shorter name (`clashes`), the type is `unknown` in OpenMetrics.
        """
        name, type_ = self.name, str(self.family_type)
        if format_.openmetrics and type_ == "counter":
            shorter = name.removesuffix("_total")
            name, type_ = (name, "unknown") if shorter == name or clashes else (shorter, type_)
        return header(name, type_, self.help, self.unit, format_)

    def lines(self, format_: Format, *, send_timestamps: bool) -> list[str]:
        """The samples. A line is a prefix, kept as text, and the current value."""
        series = list(self.series.values())
        if send_timestamps or (format_.openmetrics and any(one.has_exemplars for one in series)):
            return list(_lines_with_extras(series, format_, send_timestamps))
        if self.family_type in ("gauge", "counter"):
            numbers = cast("list[NumberSeries]", series)
            if math.isfinite(sum([one.value for one in numbers])):
                return [f"{one.prefix}{one.value!r}\n" for one in numbers]
            return [f"{one.prefix}{number_text(one.value)}\n" for one in numbers]
        return [f"{prefix}{number_text(value)}\n" for one in series for prefix, value, _ in one.samples()]


def header(name: str, type_: str, help_: str, unit: str, format_: Format) -> str:
    """The comments HELP, TYPE and, in OpenMetrics, UNIT."""
    shown = quoted_name(name)
    has_unit = format_.openmetrics and unit and name.endswith(f"_{unit}")
    unit_comment = f"# UNIT {shown} {unit}\n" if has_unit else ""
    return f"# HELP {shown} {escape(help_, quotes=format_.openmetrics)}\n# TYPE {shown} {type_}\n{unit_comment}"


def _lines_with_extras(series: list[ExposedSeries], format_: Format, send_timestamps: bool) -> Iterator[str]:
    for one in series:
        time = f" {_timestamp(one.time, format_)}" if send_timestamps and one.time else ""
        for prefix, value, exemplar in one.samples():
            suffix = _exemplar_text(exemplar) if exemplar is not None and format_.openmetrics else ""
            yield f"{prefix}{number_text(value)}{time}{suffix}\n"


def _timestamp(time_ns: int, format_: Format) -> str:
    """Seconds in OpenMetrics, milliseconds in the Prometheus text format."""
    milliseconds = time_ns // 1_000_000
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}" if format_.openmetrics else str(milliseconds)


def _exemplar_text(exemplar: Exemplar) -> str:
    ids = {"trace_id": exemplar.trace_id.hex(), "span_id": exemplar.span_id.hex()}
    others = {classic_label(pair.key): value_text(pair.value) for pair in exemplar.filtered_attributes}
    labels = others | ids
    if sum(len(name) + len(value) for name, value in labels.items()) > _MAX_EXEMPLAR_LABELS:
        labels = ids
    time = f" {_timestamp(exemplar.time_unix_nano, Format(openmetrics=True))}" if exemplar.time_unix_nano else ""
    return f" # {{{label_text(labels)}}} {number_text(exemplar_value(exemplar))}{time}"
