"""The Prometheus text format 0.0.4, and OpenMetrics 1.0."""

import math
from collections.abc import Iterable, Iterator
from typing import cast

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel_libraries.prometheus.formats.messages import exemplar_labels
from otel_zernel_libraries.prometheus.formats.negotiation import Format
from otel_zernel_libraries.prometheus.labels import escape, label_text, number_text, quoted_name
from otel_zernel_libraries.prometheus.series import ExposedSeries, HistogramSeries, NumberSeries, exemplar_value


def header(name: str, type_: str, help_: str, unit: str, format_: Format) -> str:
    """The comments HELP, TYPE and, in OpenMetrics, UNIT."""
    shown = quoted_name(name)
    has_unit = format_.openmetrics and unit and name.endswith(f"_{unit}")
    unit_comment = f"# UNIT {shown} {unit}\n" if has_unit else ""
    return f"# HELP {shown} {escape(help_, quotes=format_.openmetrics)}\n# TYPE {shown} {type_}\n{unit_comment}"


def sample_lines(series: Iterable[ExposedSeries], type_: str, format_: Format, *, send_timestamps: bool) -> list[str]:
    """The samples of a family. A line is a prefix, kept as text, and the current value."""
    if send_timestamps or (format_.openmetrics and any(series_.has_exemplars for series_ in series)):
        return list(_lines_with_extras(series, format_, send_timestamps))
    if type_ in ("gauge", "counter"):
        numbers = cast("Iterable[NumberSeries]", series)
        if math.isfinite(sum([number.value for number in numbers])):
            return [f"{number.prefix}{number.value!r}\n" for number in numbers]
        return [f"{number.prefix}{number_text(number.value)}\n" for number in numbers]
    if type_ == "histogram":
        histograms = cast("Iterable[HistogramSeries]", series)
        return [line for histogram in histograms for line in histogram.lines(openmetrics=format_.openmetrics)]
    samples = (sample for series_ in series for sample in series_.samples(openmetrics=format_.openmetrics))
    return [f"{prefix}{number_text(value)}\n" for prefix, value, _ in samples]


def _lines_with_extras(series: Iterable[ExposedSeries], format_: Format, send_timestamps: bool) -> Iterator[str]:
    for series_ in series:
        time = f" {_timestamp(series_.time, format_)}" if send_timestamps and series_.time else ""
        for prefix, value, exemplar in series_.samples(openmetrics=format_.openmetrics):
            suffix = _exemplar_text(exemplar) if exemplar is not None and format_.openmetrics else ""
            yield f"{prefix}{number_text(value)}{time}{suffix}\n"


def _timestamp(time_ns: int, format_: Format) -> str:
    """Seconds in OpenMetrics, milliseconds in the Prometheus text format."""
    milliseconds = time_ns // 1_000_000
    return f"{milliseconds // 1000}.{milliseconds % 1000:03}" if format_.openmetrics else str(milliseconds)


def _exemplar_text(exemplar: Exemplar) -> str:
    time = f" {_timestamp(exemplar.time_unix_nano, Format(openmetrics=True))}" if exemplar.time_unix_nano else ""
    return f" # {{{label_text(exemplar_labels(exemplar))}}} {number_text(exemplar_value(exemplar))}{time}"
