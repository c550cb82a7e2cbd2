"""A batch to be read at a glance: a table for each metric, a line a series."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint, SummaryDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_exporters.debug.attributes import texts, utc
from otel_zernel_exporters.debug.quantity import digits, humane

LONG = 20
"""Values with more characters, such as a GPU's UUID, go unsaid where series are told apart without them."""
CELL = 9
"""The least width of a column, so that tables of different metrics line up."""
HEADING = 120
"""The most characters of what all series share."""

Labels = dict[str, str]


@dataclass(slots=True)
class Row:
    """One series: what it is called, and its columns."""

    metric: str
    who: Labels
    """The attributes of its resource."""
    labels: Labels
    """These, and its own."""
    cells: Mapping[str, str]


def render_metrics(metrics: MetricsData) -> Iterator[str]:
    """The lines of a batch: what all series share, then a table a metric."""
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
    """What is short comes first: it says more of a series than a UUID or a time does, and may be all that fits."""
    ordered = dict(sorted(shared.items(), key=lambda pair: len(pair[1]) > LONG))
    return shorten(f"{utc(time_ns)} {_labels(ordered)}", HEADING, placeholder=" …")


def _rows(metrics: MetricsData) -> tuple[list[Row], int]:
    """A row for every series, and the time of the newest point."""
    series: dict[tuple[str, frozenset[tuple[str, str]]], tuple[Metric, Labels, Labels, list[Any]]] = {}
    newest = 0
    for resource in metrics.resource_metrics:
        who = texts(resource.resource.attributes)
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in points(metric):
                if has_no_value(point):
                    continue
                labels = who | texts(point.attributes)
                key = metric.name, frozenset(labels.items())
                series.setdefault(key, (metric, who, labels, []))[-1].append(point)
                newest = max(newest, point.time_unix_nano)
    rows = [
        Row(_quoted(metric.name), who, labels, _cells(metric, same)) for metric, who, labels, same in series.values()
    ]
    return rows, newest


def _cells(metric: Metric, series: list[Any]) -> Mapping[str, str]:
    """The columns of a series: of its last point, where it has several."""
    last, unit = series[-1], metric.unit
    if isinstance(last, NumberDataPoint):
        value = last.as_int if last.WhichOneof("value") == "as_int" else last.as_double
        more = {"points": digits(len(series))} if len(series) > 1 else {}
        return {"value": humane(value, unit), **more}
    mean = {"mean": humane(last.sum / last.count, unit)} if last.count else {}
    return {"count": digits(last.count), **mean, **_spread(last, unit)}


def _spread(point: Any, unit: str) -> dict[str, str]:
    """Where the values of a summary or a histogram lie."""
    if isinstance(point, SummaryDataPoint):
        ordered = sorted(point.quantile_values, key=lambda at: at.quantile)
        return {_quantile(at.quantile): humane(at.value, unit) for at in ordered}
    bounds = {"min": point.min, "max": point.max}
    return {name: humane(value, unit) for name, value in bounds.items() if point.HasField(name)}


def _quantile(quantile: float) -> str:
    """`p99.9` for 0.999. The lowest and the highest are by OTLP's definition the minimum and the maximum."""
    return {0.0: "min", 1.0: "max"}.get(quantile, f"p{100 * quantile:.6g}")


def _shared(series: list[Labels]) -> Labels:
    """What all series have in common, in the order of the first."""
    shared = series[0]
    for labels in series:
        shared = {key: value for key, value in shared.items() if labels.get(key) == value}
    return shared


def _shorten(rows: list[Row], shared: Labels) -> None:
    """Leaves each series the labels that tell it from the others of its metric: of what describes the resource, or is
    long, as little as does, the longest going first. A series' own short attributes stay."""
    for row in rows:
        row.labels = {key: value for key, value in row.labels.items() if key not in shared}
    lengths: dict[str, int] = {}
    for row in rows:
        for key, value in row.labels.items():
            if key in row.who or len(value) > LONG:
                lengths[key] = max(lengths.get(key, 0), len(value))
    for key in sorted(lengths, key=lambda key: -lengths[key]):
        without = [{other: value for other, value in row.labels.items() if other != key} for row in rows]
        if len({(row.metric, *sorted(labels.items())) for row, labels in zip(rows, without, strict=True)}) == len(rows):
            for row, labels in zip(rows, without, strict=True):
                row.labels = labels


def _table(name: str, rows: list[Row], width: int) -> Iterator[str]:
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


def _quoted(text: str) -> str:
    """The text as it is if it is a word, else in quotes; what could upset a terminal is escaped."""
    if not text.isprintable():
        return json.dumps(text)
    return text if text and " " not in text else json.dumps(text, ensure_ascii=False)


def render_spans(traces: TracesData) -> Iterator[str]:
    """What the spans of a resource share, then a line a span: how long after the first it began, how long it took, its
    name and how it ended."""
    for resource in traces.resource_spans:
        spans = [span for scope in resource.scope_spans for span in scope.spans]
        if spans:
            first = min(span.start_time_unix_nano for span in spans)
            width = max(len(_quoted(span.name)) for span in spans)
            who = texts(resource.resource.attributes)
            yield _heading(first, who)
            yield from (_span(span, who, first, width) for span in spans)
            yield ""


def _span(span: Span, who: Labels, first_ns: int, width: int) -> str:
    after = "+" + humane((span.start_time_unix_nano - first_ns) / 1e9, "s")
    duration = humane((span.end_time_unix_nano - span.start_time_unix_nano) / 1e9, "s")
    failed = "  error" if span.status.code == Status.STATUS_CODE_ERROR else ""
    ids = {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()}
    own = {key: value for key, value in (texts(span.attributes) | ids).items() if value and who.get(key) != value}
    return f"  {after:>{CELL}}  {duration:>{CELL}}  {_quoted(span.name):<{width}}{failed}  {_labels(own)}"
