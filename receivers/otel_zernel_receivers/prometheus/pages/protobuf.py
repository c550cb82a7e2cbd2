"""Reads the protobuf format, io/prometheus/client/metrics.proto, with native histograms.

Labels are declared as bytes, which have the same wire format: they are the same at each scrape, and are only read when
they are new. A type is declared as a number, because an unknown one would be read as a counter.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, reduce
from itertools import accumulate
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import DecodeError as ProtobufDecodeError

from otel_zernel.once import once
from otel_zernel_libraries.prometheus.formats.messages import FIELDS, message_file
from otel_zernel_libraries.protobuf import message_of
from otel_zernel_receivers.prometheus.pages import page as pages


@cache
def message_class(name: str) -> Any:
    """The class of a message: `MetricFamily`, `LabelPair`."""
    return message_of(_file(), name)


@once
def _file() -> FileDescriptor:
    read = (("LabelPair* label", "bytes* label"), ("MetricType type", "int32 type"))
    return message_file(
        {name: reduce(lambda text, replacement: text.replace(*replacement), read, FIELDS[name]) for name in FIELDS}
    )


_NO_ZERO_THRESHOLD = 1e-128
"""Stands for a threshold of 0, which a native histogram must not have if it is empty.

The exporter prometheus writes it, and so does Prometheus' own OTLP receiver (`defaultZeroThreshold`).
"""
_TYPES: Mapping[int, pages.MetricType] = {
    0: "counter",
    1: "gauge",
    2: "summary",
    3: "unknown",
    4: "histogram",
    5: "gaugehistogram",
}
_SCHEMAS = range(-4, 9)
"""The resolutions of native histograms with exponential buckets."""
_MOST_BUCKETS = 100_000
"""Buckets of one side. Two spans can claim 8 billion, in 20 bytes."""


class ProtobufReader:
    """Reads the pages of one target."""

    def __init__(self, *, native: bool, classic_too: bool) -> None:
        """`native`: whether to read native histograms; `classic_too`: their classic buckets too."""
        self._native = native
        self._classic_too = classic_too
        self._families: dict[str, pages.PageFamily] = {}

    def read(self, body: bytes) -> pages.ScrapedPage:
        """The page in `body`: messages `MetricFamily`, each after its length. Raises `NotAPage`."""
        page = pages.ScrapedPage()
        families: dict[str, pages.PageFamily] = {}
        for encoded in _delimited_messages(body):
            try:
                family = message_class("MetricFamily").FromString(encoded)
            except ProtobufDecodeError as error:
                raise pages.NotAPage(f"not a page in Prometheus' protobuf format: {error}") from error
            families[family.name] = pages.PageFamily(_TYPES.get(family.type, "unknown"), family.unit, family.help)
            for metric in family.metric:
                self._add(family.name, families[family.name].type, metric, page)
        if families != self._families:
            self._families = families
        page.families = self._families
        return page

    def _add(self, name: str, type_: pages.MetricType, metric: Any, page: pages.ScrapedPage) -> None:
        first, labels = len(page.keys), tuple(metric.label)
        if type_ in ("histogram", "gaugehistogram"):
            self._add_histogram(name, labels, metric.histogram, page, gauge=type_ == "gaugehistogram")
        elif type_ == "summary":
            _add_summary(name, labels, metric.summary, page)
        elif type_ == "counter":
            _add_counter(name, labels, metric.counter, page)
        else:
            _put(page, (name, labels, None), (metric.gauge if type_ == "gauge" else metric.untyped).value)
        if metric.timestamp_ms > 0:
            for position in range(first, len(page.keys)):
                page.times_ns[position] = metric.timestamp_ms * 1_000_000

    def _add_histogram(
        self, name: str, labels: tuple[bytes, ...], histogram: Any, page: pages.ScrapedPage, *, gauge: bool
    ) -> None:
        is_native = self._native and _is_native(histogram)
        if is_native:
            try:
                page.natives[len(page.keys)] = _native(histogram)
                _put(page, (name, labels, None), page.natives[len(page.keys)].count)
            except ValueError as error:
                page.natives.pop(len(page.keys), None)
                page.skip(f"native histogram {name}: {error}")
        if not is_native or self._classic_too:
            _add_classic(name, labels, histogram, page, "g" if gauge else "")


def read_label_pairs(key: pages.ProtoKey) -> pages.Labels:
    """The labels of a sample. Raises `ValueError`."""
    name, encoded, extra = key
    labels = {pages.NAME: name} | _pairs(encoded)
    if extra:
        labels[extra[0]] = extra[1]
    return labels


def _pairs(encoded: Iterable[bytes]) -> pages.Labels:
    try:
        pairs = [message_class("LabelPair").FromString(pair) for pair in encoded]
        return {pair.name: pair.value for pair in pairs}
    except ProtobufDecodeError as error:
        raise ValueError(str(error)) from error


def _delimited_messages(body: bytes) -> Iterator[bytes]:
    position, end = 0, len(body)
    while position < end:
        size = shift = 0
        while True:
            if position >= end or shift > 28:
                raise pages.NotAPage("not a page in Prometheus' protobuf format: a length is damaged")
            byte = body[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        if position + size > end:
            raise pages.NotAPage("the page is not complete: its last message is cut off")
        yield body[position : position + size]
        position += size


def _put(page: pages.ScrapedPage, key: pages.ProtoKey, value: float) -> None:
    page.keys.append(key)
    page.values.append(value)


def _add_counter(name: str, labels: tuple[bytes, ...], counter: Any, page: pages.ScrapedPage) -> None:
    if counter.HasField("exemplar"):
        page.exemplars[len(page.keys)] = _exemplar(counter.exemplar)
    _put(page, (name, labels, None), counter.value)
    _put_created(name, labels, counter, page)


def _add_summary(name: str, labels: tuple[bytes, ...], summary: Any, page: pages.ScrapedPage) -> None:
    for quantile_ in summary.quantile:
        _put(page, (name, labels, ("quantile", _float_text(quantile_.quantile))), quantile_.value)
    _put(page, (f"{name}_sum", labels, None), summary.sample_sum)
    _put(page, (f"{name}_count", labels, None), summary.sample_count)
    _put_created(name, labels, summary, page)


def _add_classic(name: str, labels: tuple[bytes, ...], histogram: Any, page: pages.ScrapedPage, prefix: str) -> None:
    for bucket in histogram.bucket:
        if bucket.HasField("exemplar"):
            page.exemplars[len(page.keys)] = _exemplar(bucket.exemplar)
        count = bucket.cumulative_count or bucket.cumulative_count_float
        _put(page, (f"{name}_bucket", labels, ("le", _float_text(bucket.upper_bound))), count)
    count = histogram.sample_count or histogram.sample_count_float
    if not any(math.isinf(bucket.upper_bound) for bucket in histogram.bucket):
        _put(page, (f"{name}_bucket", labels, ("le", "+Inf")), count)
    _put(page, (f"{name}_{prefix}sum", labels, None), histogram.sample_sum)
    _put(page, (f"{name}_{prefix}count", labels, None), count)
    _put_created(name, labels, histogram, page)


def _put_created(name: str, labels: tuple[bytes, ...], metric: Any, page: pages.ScrapedPage) -> None:
    if metric.HasField("created_timestamp"):
        _put(page, (f"{name.removesuffix('_total')}_created", labels, None), _time_ns(metric.created_timestamp) / 1e9)


def _time_ns(time: Any) -> int:
    return int(time.seconds * 1_000_000_000 + time.nanos)


def _exemplar(exemplar: Any) -> pages.PageExemplar:
    time_ns = _time_ns(exemplar.timestamp) if exemplar.HasField("timestamp") else None
    return pages.PageExemplar(_pairs(exemplar.label), exemplar.value, time_ns)


def _is_native(histogram: Any) -> bool:
    """Prometheus' own rule: an empty native histogram has a zero threshold or an empty span."""
    return bool(
        histogram.positive_span
        or histogram.negative_span
        or histogram.zero_threshold > 0
        or histogram.zero_count
        or histogram.zero_count_float
    )


def _native(histogram: Any) -> pages.NativeHistogram:
    if histogram.schema not in _SCHEMAS:
        raise ValueError(f"schema {histogram.schema} is not one of -4 to 8")
    return pages.NativeHistogram(
        histogram.schema,
        histogram.sample_count or round(histogram.sample_count_float),
        histogram.sample_sum,
        histogram.zero_count or round(histogram.zero_count_float),
        0.0 if histogram.zero_threshold == _NO_ZERO_THRESHOLD else histogram.zero_threshold,
        _side(histogram.positive_span, histogram.positive_delta, histogram.positive_count),
        _side(histogram.negative_span, histogram.negative_delta, histogram.negative_count),
        _time_ns(histogram.created_timestamp) if histogram.HasField("created_timestamp") else 0,
        tuple(map(_exemplar, histogram.exemplars)),
    )


def _side(spans: Any, deltas: Any, counts: Any) -> tuple[int, list[int]]:
    """The offset and the counts of one side in the terms of OTLP, whose indexes are lower by 1.

    Prometheus' bucket i has the upper bound base^i, OTLP's has the lower bound base^i.
    """
    given = list(accumulate(deltas)) or [round(count) for count in counts]
    if sum(span.length for span in spans) != len(given):
        raise ValueError("the spans do not fit the buckets")
    if not given:
        return 0, []
    if min(given) < 0:
        raise ValueError("a bucket has a negative count")
    gaps = [max(span.offset, 0) if number else 0 for number, span in enumerate(spans)]
    if sum(gaps) + len(given) > _MOST_BUCKETS:
        raise ValueError(f"more than {_MOST_BUCKETS:,} buckets")
    buckets: list[int] = []
    taken = 0
    for gap, span in zip(gaps, spans, strict=True):
        buckets += [0] * gap + given[taken : taken + span.length]
        taken += span.length
    return spans[0].offset - 1, buckets


def _float_text(number: float) -> str:
    """The number as Go and OpenMetrics write it: `0.5`, `1.0`, `1e+06`, `+Inf`."""
    if math.isinf(number) or math.isnan(number):
        return "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
    exponent = math.floor(math.log10(abs(number))) if number else 0
    if -4 <= exponent < 21 and abs(number) < 1e6:
        return repr(float(number))
    digits = f"{number:.17e}"
    for places in range(17):
        if float(digits := f"{number:.{places}e}") == number:
            break
    return digits
