"""Prometheus' protobuf format: each family as its length and a message `io.prometheus.client.MetricFamily`.

The parts of a series' message that do not change are encoded once and kept. A message is its fields, one after the
other, so the value follows them. Field numbers are those of `messages`.
"""

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar

from otel_zernel.protobuf import delimited, prefix, varint
from otel_zernel_libraries.prometheus.formats.messages import (
    METRIC_TYPES,
    CounterMessage,
    ExemplarMessage,
    HistogramMessage,
    LabelPairMessage,
    MetricFamilyMessage,
    SummaryMessage,
    exemplar_labels,
)
from otel_zernel_libraries.prometheus.histograms import native_buckets
from otel_zernel_libraries.prometheus.series import (
    CounterSeries,
    ExponentialHistogramSeries,
    ExposedSeries,
    HistogramSeries,
    NumberSeries,
    SummarySeries,
    exemplar_value,
)

_LABEL, _TIME = 1, 6  # fields of Metric
_GAUGE, _COUNTER, _SUMMARY, _HISTOGRAM = 2, 3, 4, 7
_METRIC = 4  # field of MetricFamily
_BUCKET, _BUCKET_COUNT, _BUCKET_EXEMPLAR = 3, 1, 3  # a field of Histogram, and fields of Bucket
_VALUE_TAG = 1 << 3 | 1  # `value`, a double, in Gauge and Counter
_VALUE = struct.Struct("<d")
_VALUE_SIZE = 9
"""Bytes of `value` with its tag."""

_PAIR = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^=,"]+))="((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def family_messages(
    name: str,
    type_: str,
    help_: str,
    unit: str,
    series: Iterable[ExposedSeries],
    *,
    send_timestamps: bool,
    native: bool,
) -> bytes:
    """A family of the page. If `native` is false, histograms have classic buckets only."""
    has_unit = bool(unit) and name.removesuffix("_total").endswith(f"_{unit}")
    head = MetricFamilyMessage(name=name, help=help_, type=METRIC_TYPES[type_], unit=unit if has_unit else None)
    start = head.SerializeToString()
    if type_ != "histogram":
        return _delimited(start, _metrics(series, send_timestamps))
    # Some releases of Prometheus look at the first series of a message to see whether all have native buckets.
    groups: dict[bool, list[bytes]] = {True: [], False: []}
    for histogram in cast("Iterable[HistogramSeries]", series):
        is_native, body = _histogram(histogram, native)
        groups[is_native].append(_metric(histogram, _HISTOGRAM, body, send_timestamps))
    return b"".join(_delimited(start, metrics) for metrics in groups.values() if metrics)


def info_message(name: str, help_: str, labels: Iterable[str]) -> bytes:
    """A gauge that is 1 for each set of labels. `labels` are texts, as in the text format."""
    head = MetricFamilyMessage(name=name, help=help_, type=METRIC_TYPES["gauge"]).SerializeToString()
    gauge = delimited(_GAUGE, bytes([_VALUE_TAG]) + _VALUE.pack(1))
    return _delimited(head, (delimited(_METRIC, _label_pairs(text) + gauge) for text in labels))


def _delimited(head: bytes, metrics: Iterable[bytes]) -> bytes:
    message = b"".join((head, *metrics))
    return varint(len(message)) + message


def _metrics(series: Iterable[ExposedSeries], send_timestamps: bool) -> Iterator[bytes]:
    pack = _VALUE.pack
    for series_ in series:
        if isinstance(series_, SummarySeries):
            yield _metric(series_, _SUMMARY, _summary(series_), send_timestamps)
        elif isinstance(series_, CounterSeries) and (send_timestamps or series_.exemplar):
            yield _metric(series_, _COUNTER, _counter(series_), send_timestamps)
        elif isinstance(series_, NumberSeries):
            if send_timestamps:
                yield _metric(series_, _GAUGE, bytes([_VALUE_TAG]) + pack(series_.value), send_timestamps)
            else:
                yield (series_.encoded or _number_head(series_)) + pack(series_.value)


def _number_head(series: NumberSeries) -> bytes:
    """The metric of a number series up to its value. It is kept."""
    created = _created(series.start, 3) if isinstance(series, CounterSeries) else b""
    labels = _label_pairs(series.labels)
    body = prefix(_COUNTER if isinstance(series, CounterSeries) else _GAUGE, len(created) + _VALUE_SIZE)
    size = len(labels) + len(body) + len(created) + _VALUE_SIZE
    head = b"".join((prefix(_METRIC, size), labels, body, created, bytes([_VALUE_TAG])))
    series.encoded = head
    return head


def _metric(series: ExposedSeries, number: int, body: bytes, send_timestamps: bool) -> bytes:
    """The metric of a series with this body, the field `number`."""
    kept = isinstance(series, HistogramSeries | SummarySeries)  # others keep their own head
    labels = (series.encoded if kept else None) or _label_pairs(series.labels)
    if kept:
        series.encoded = labels
    time = bytes([_TIME << 3]) + varint(series.time // 1_000_000) if send_timestamps and series.time else b""
    return delimited(_METRIC, b"".join((labels, delimited(number, body), time)))


def _counter(series: CounterSeries) -> bytes:
    exemplar = None if series.exemplar is None else _exemplar(series.exemplar)
    message = CounterMessage(value=series.value, exemplar=exemplar)
    return bytes(message.SerializeToString()) + _created(series.start, 3)


def _summary(series: SummarySeries) -> bytes:
    pairs = zip(series.quantiles or (), series.values, strict=True)
    message = SummaryMessage(
        sample_count=series.count,
        sample_sum=math.nan if series.total is None else series.total,
        quantile=[{"quantile": quantile, "value": value} for quantile, value in pairs],
    )
    return bytes(message.SerializeToString()) + _created(series.start, 4)


def _histogram(series: HistogramSeries, native: bool) -> tuple[bool, bytes]:
    """Whether a histogram has native buckets, and its message. It always has classic buckets.

    A scraper may request this format and yet not know, or not want, native histograms.
    """
    totals = series.totals()
    message = HistogramMessage(sample_count=totals[-1])
    is_native = native and isinstance(series, ExponentialHistogramSeries) and _add_native(message, series)
    total = series.total if is_native else series.shown_total
    message.sample_sum = math.nan if total is None else total
    buckets = _buckets(series, totals)
    return is_native, b"".join((message.SerializeToString(), *buckets, _created(series.start, 15)))


def _buckets(series: HistogramSeries, totals: list[int]) -> Iterator[bytes]:
    """The classic buckets, fields of `Histogram`."""
    head, previous = b"", -1
    for index, (bound, total) in enumerate(zip(series.bounds.encoded, totals, strict=True)):
        if index in series.exemplars:
            count = bytes([_BUCKET_COUNT << 3]) + varint(total)
            exemplar = _exemplar(series.exemplars[index]).SerializeToString()
            yield delimited(_BUCKET, count + bound + delimited(_BUCKET_EXEMPLAR, exemplar))
            continue
        if total != previous:  # most buckets are empty, so that the totals of many are equal
            count = varint(total)
            size = 1 + len(count) + len(bound)
            head, previous = b"".join((bytes([_BUCKET << 3 | 2]), bytes((size, _BUCKET_COUNT << 3)), count)), total
        yield head
        yield bound


def _add_native(message: "HistogramMessage", series: ExponentialHistogramSeries) -> bool:
    """Adds the native buckets of a series. False if its scale is too coarse for them."""
    buckets = native_buckets(series.buckets) if series.buckets else None
    if buckets is None:
        return False
    message.schema, message.zero_count = buckets.schema, buckets.zero_count
    message.zero_threshold = buckets.zero_threshold
    for side, spans, deltas in (
        (buckets.negative, message.negative_span, message.negative_delta),
        (buckets.positive, message.positive_span, message.positive_delta),
    ):
        for offset, length in side.spans:
            spans.add(offset=offset, length=length)
        deltas.extend(side.deltas)
    message.exemplars.extend(_exemplar(exemplar) for exemplar in series.exemplars.values() if exemplar.time_unix_nano)
    return True


def _exemplar(exemplar: Exemplar) -> "ExemplarMessage":
    labels = [{"name": name, "value": value} for name, value in exemplar_labels(exemplar).items() if value]
    message = ExemplarMessage(label=labels, value=exemplar_value(exemplar))
    if exemplar.time_unix_nano:
        message.timestamp.FromNanoseconds(exemplar.time_unix_nano)
    return message


def _created(time_ns: int, number: int) -> bytes:
    """The field `created_timestamp`, which has this number; nothing if the time is unknown."""
    if not time_ns:
        return b""
    seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
    timestamp = bytes([1 << 3]) + varint(seconds) + bytes([2 << 3]) + varint(nanoseconds)
    return delimited(number, timestamp)


def _label_pairs(text: str) -> bytes:
    """The labels of a series, from their text."""
    return b"".join(
        delimited(_LABEL, LabelPairMessage(name=name, value=value).SerializeToString())
        for name, value in labels_of_text(text).items()
    )


def labels_of_text(text: str) -> Mapping[str, str]:
    """The labels of a text as `label_text` makes it."""
    return {_unescaped(quoted) or plain: _unescaped(value) for quoted, plain, value in _PAIR.findall(text)}


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else match[1], text) if "\\" in text else text
