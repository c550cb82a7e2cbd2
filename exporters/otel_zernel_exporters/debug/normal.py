"""Readable tables of a batch: one for each metric, with a line for each series."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData, SeverityNumber
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint, SummaryDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.debug import basic
from otel_zernel_exporters.debug.basic import text, texts, utc
from otel_zernel_libraries.histograms.quantiles import histogram_quantiles

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_BINARY = ((2.0**40, "Ti"), (2.0**30, "Gi"), (2.0**20, "Mi"), (2.0**10, "Ki"), (1.0, ""))
_FRACTIONS = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))

# UCUM units that OpenTelemetry uses: the usual symbol, and its prefixes.
_UNITS = {
    "s": ("s", _FRACTIONS),
    "By": ("B", _BINARY),
    "By/s": ("B/s", _BINARY),
    "W": ("W", _DECIMAL),
    "J": ("J", _DECIMAL),
    "Hz": ("Hz", _DECIMAL),
    "Cel": ("°C", ((1.0, ""),)),
}


def readable(value: float, unit: str) -> str:
    """The value with its unit: 0.0000061 s is `6.10 us`, 0.97 of 1 is `97.0 %`. Annotations (`{error}`) are omitted."""
    if not math.isfinite(value):
        return str(value)
    if unit == "1":
        return f"{_three_digits(value * 100)} %"
    if unit not in _UNITS:
        return digits(value) if not unit or unit.startswith("{") else f"{digits(value)} {unit}"
    symbol, prefixes = _UNITS[unit]
    size, prefix = next(
        (prefix for prefix in prefixes if abs(value) >= prefix[0]), prefixes[-1] if value else (1.0, "")
    )
    return f"{_three_digits(value / size) if prefix else digits(value)} {prefix}{symbol}"


def digits(value: float) -> str:
    """All digits of a whole number, three significant digits of others."""
    return f"{value:,.0f}" if value == int(value) else _three_digits(value)


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 100:
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


LONG = 20
"""Labels with more characters, such as the UUID of a GPU, are omitted if series differ without them."""
CELL = 9
"""The minimum width of a column, in characters: tables of different metrics line up."""
HEADING = 120
"""The maximum length of the heading, in characters."""

QUANTILES = (0.5, 0.9, 0.99)
"""The quantiles of histograms to show."""
_EXTREMES = {0.0: "min", 1.0: "max"}

Labels = dict[str, str]


@dataclass(slots=True)
class TableRow:
    """One series: its labels and its columns."""

    metric: str
    resource: Labels
    """The attributes of the resource."""
    labels: Labels
    """The attributes of the resource and the point that the line shows."""
    cells: Mapping[str, str]


def _metrics(metrics: MetricsData) -> Iterator[str]:
    """The lines of a batch: the labels that all series share, then a table for each metric."""
    rows, newest = _rows(metrics)
    if not rows:
        return
    shared = _shared([row.labels for row in rows])
    _shorten(rows, shared)
    yield _heading(newest, shared)
    names = list(dict.fromkeys(row.metric for row in rows))
    width = max(len(name) for name in [*names, *("  " + _labels(row.labels) for row in rows)])
    for name in names:
        yield from _table(name, [row for row in rows if row.metric == name], width)
    yield ""


def _heading(time_ns: int, shared: Labels) -> str:
    """The time and the shared labels, cut off at `HEADING` characters. Short labels come first: they say the most."""
    ordered = dict(sorted(shared.items(), key=lambda pair: len(pair[1]) > LONG))
    return shorten(f"{utc(time_ns)} {_labels(ordered)}", HEADING, placeholder=" …")


def _rows(metrics: MetricsData) -> tuple[list[TableRow], int]:
    """A row for every series, and the time of the newest point in ns."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Metric, Labels, Labels, list[Any]]] = {}
    newest = 0
    for resource in metrics.resource_metrics:
        about = texts(resource.resource.attributes)
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in points(metric):
                if has_no_value(point):
                    continue
                labels = about | texts(point.attributes)
                key = metric.name, frozenset(labels.items())
                series.setdefault(key, (metric, about, labels, []))[-1].append(point)
                newest = max(newest, point.time_unix_nano)
    rows = [
        TableRow(_quoted(metric.name), about, labels, _cells(metric, same))
        for metric, about, labels, same in series.values()
    ]
    return rows, newest


def _cells(metric: Metric, series: list[Any]) -> Mapping[str, str]:
    """The columns of a series, from its last point."""
    last, unit = series[-1], metric.unit
    if isinstance(last, NumberDataPoint):
        value = last.as_int if last.WhichOneof("value") == "as_int" else last.as_double
        more = {"points": digits(len(series))} if len(series) > 1 else {}
        return {"value": readable(value, unit), **more}
    mean = {"mean": readable(last.sum / last.count, unit)} if last.count else {}
    return {"count": digits(last.count), **mean, **_spread(last, unit)}


def _spread(point: Any, unit: str) -> dict[str, str]:
    """The quantiles of a summary; the minimum, the quantiles and the maximum of a histogram."""
    if isinstance(point, SummaryDataPoint):
        values = {at.quantile: at.value for at in sorted(point.quantile_values, key=lambda at: at.quantile)}
    else:
        values = dict(zip(QUANTILES, histogram_quantiles(point, QUANTILES), strict=False))
        values |= {quantile: getattr(point, name) for quantile, name in _EXTREMES.items() if point.HasField(name)}
    return {_quantile(quantile): readable(values[quantile], unit) for quantile in sorted(values)}


def _quantile(quantile: float) -> str:
    """`p99.9` for 0.999. OTLP defines quantiles 0 and 1 as the minimum and the maximum."""
    return {0.0: "min", 1.0: "max"}.get(quantile, f"p{100 * quantile:.6g}")


def _shared(series: list[Labels]) -> Labels:
    """The labels that all series share, in the order of the first series."""
    shared = series[0]
    for labels in series:
        shared = {key: value for key, value in shared.items() if labels.get(key) == value}
    return shared


def _shorten(rows: list[TableRow], shared: Labels) -> None:
    """Removes labels that are not needed to distinguish the series of a metric.

    Candidates are resource attributes and long values, the longest first. Short attributes of the point stay.
    """
    for row in rows:
        row.labels = {key: value for key, value in row.labels.items() if key not in shared}
    lengths: dict[str, int] = {}
    for row in rows:
        for key, value in row.labels.items():
            if key in row.resource or len(value) > LONG:
                lengths[key] = max(lengths.get(key, 0), len(value))
    for key in sorted(lengths, key=lambda key: -lengths[key]):
        without = [{name: value for name, value in row.labels.items() if name != key} for row in rows]
        if len({(row.metric, *sorted(labels.items())) for row, labels in zip(rows, without, strict=True)}) == len(rows):
            for row, labels in zip(rows, without, strict=True):
                row.labels = labels


def _table(name: str, rows: list[TableRow], width: int) -> Iterator[str]:
    columns = list(dict.fromkeys(column for row in rows for column in row.cells))
    widths = {column: max(CELL, *(len(row.cells.get(column, "")) for row in rows)) for column in columns}
    yield f"{name:<{width}}" + "".join(f"  {column:>{widths[column]}}" for column in columns)
    for row in sorted(rows, key=lambda row: _in_reading_order(_labels(row.labels))):
        cells = "".join(f"  {row.cells.get(column, ''):>{widths[column]}}" for column in columns)
        yield f"{'  ' + _labels(row.labels):<{width}}{cells}"


def _in_reading_order(label: str) -> list[tuple[int, str]]:
    """A key that sorts `gpu=2` before `gpu=10`."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", label)]


def _labels(labels: Labels) -> str:
    return " ".join(f"{key}={_quoted(value)}" for key, value in labels.items())


def _quoted(word: str) -> str:
    """The text unchanged if it is one word, else in quotes. Unprintable characters are escaped."""
    if not word.isprintable():
        return json.dumps(word)
    return word if word and " " not in word else json.dumps(word, ensure_ascii=False)


def _spans(traces: TracesData) -> Iterator[str]:
    """For each resource its attributes, then a line for each span.

    A line has the start relative to the first span, the duration, the name, `error` if it failed, and the attributes.
    """
    for resource in traces.resource_spans:
        spans = [span for scope in resource.scope_spans for span in scope.spans]
        if spans:
            first = min(span.start_time_unix_nano for span in spans)
            width = max(len(_quoted(span.name)) for span in spans)
            about = texts(resource.resource.attributes)
            yield _heading(first, about)
            yield from (_span(span, about, first, width) for span in spans)
            yield ""


def _span(span: Span, about: Labels, first_ns: int, width: int) -> str:
    after = "+" + readable((span.start_time_unix_nano - first_ns) / 1e9, "s")
    duration = readable((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9, "s")
    failed = "  error" if span.status.code == Status.STATUS_CODE_ERROR else ""
    ids = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
    own = {key: value for key, value in (texts(span.attributes) | ids).items() if value and about.get(key) != value}
    return f"  {after:>{CELL}}  {duration:>{CELL}}  {_quoted(span.name):<{width}}{failed}  {_labels(own)}"


def _logs(logs: LogsData) -> Iterator[str]:
    """For each resource its attributes, then a line for each log record.

    A line has the time relative to the first record, the severity, the body, and the attributes.
    """
    for resource in logs.resource_logs:
        records = [record for scope in resource.scope_logs for record in scope.log_records]
        if records:
            first = min(map(_log_time, records))
            width = max(len(_severity(record)) for record in records)
            about = texts(resource.resource.attributes)
            yield _heading(first, about)
            yield from (_log_record(record, about, first, width) for record in records)
            yield ""


def _log_time(record: LogRecord) -> int:
    """When the event happened. If the source did not say that, when it was first seen. In ns."""
    return record.time_unix_nano or record.observed_time_unix_nano


def _log_record(record: LogRecord, about: Labels, first_ns: int, width: int) -> str:
    after = "+" + readable((_log_time(record) - first_ns) / 1e9, "s")
    ids = {"event": record.event_name, "trace_id": record.trace_id.hex(), "span_id": record.span_id.hex()}
    own = {key: value for key, value in (texts(record.attributes) | ids).items() if value and about.get(key) != value}
    return f"  {after:>{CELL}}  {_severity(record):<{width}}  {_quoted(text(record.body))}  {_labels(own)}".rstrip()


def _severity(record: LogRecord) -> str:
    """The severity in the words of the source, else the name of its number. Empty if there is neither."""
    if record.severity_text or not record.severity_number:
        return _quoted(record.severity_text) if record.severity_text else ""
    known = SeverityNumber.DESCRIPTOR.values_by_number.get(record.severity_number)
    return known.name.removeprefix("SEVERITY_NUMBER_") if known else str(record.severity_number)


LAYOUT: basic.Layout = {**basic.LAYOUT, "metrics": _metrics, "traces": _spans, "logs": _logs}
