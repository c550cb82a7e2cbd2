"""Any batch gives requests that obey all rules of the specifications, and that have every sample once."""

import re
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    Exemplar,
    ExponentialHistogramDataPoint,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    SummaryDataPoint,
)

from otel_zernel_exporters.prometheusremotewrite.protocol import (
    Encoding,
    Entry,
    Translation,
    Version1,
    Version2,
    in_waves,
    with_classic_histograms,
)
from otel_zernel_libraries.prometheus import Options, ResourceLabels
from tests.exporters.prometheusremotewrite.decoding import Decoded, decoded_v1, decoded_v2
from tests.otlp import NOW, data, gauge, number

TEXTS = st.text(st.characters(codec="utf-8"), max_size=4) | st.sampled_from(
    ["le", "__name__", "job", "quantile", "ß", ""]
)
VALUES = TEXTS.map(lambda text: AnyValue(string_value=text)) | st.booleans().map(lambda one: AnyValue(bool_value=one))
ATTRIBUTES = st.lists(st.builds(KeyValue, key=TEXTS, value=VALUES), max_size=3)
TIMES = st.integers(0, 3).map(lambda second: NOW + second * 1_000_000_000) | st.just(0)
NUMBERS = st.floats(allow_subnormal=True)
COUNTS = st.integers(0, 10)
EXEMPLARS = st.lists(
    st.builds(Exemplar, time_unix_nano=TIMES, as_double=NUMBERS, filtered_attributes=ATTRIBUTES), max_size=2
)
COMMON: dict[str, Any] = {
    "attributes": ATTRIBUTES,
    "time_unix_nano": TIMES,
    "start_time_unix_nano": TIMES,
    "flags": st.sampled_from([0, 0, 0, 1]),
}
POINTS = st.builds(NumberDataPoint, as_double=NUMBERS, exemplars=EXEMPLARS, **COMMON)
HISTOGRAMS = st.lists(COUNTS, min_size=1, max_size=4).flatmap(
    lambda counts: st.builds(
        HistogramDataPoint,
        bucket_counts=st.just(counts),
        explicit_bounds=st.lists(st.floats(-5, 5), min_size=len(counts) - 1, max_size=len(counts) - 1, unique=True).map(
            sorted
        ),
        count=st.just(sum(counts)),
        sum=st.none() | NUMBERS,
        exemplars=EXEMPLARS,
        **COMMON,
    )
)
SIDES = st.builds(
    ExponentialHistogramDataPoint.Buckets,
    offset=st.integers(-300, 300),
    bucket_counts=st.lists(COUNTS, max_size=40),
)
EXPONENTIALS = st.builds(
    ExponentialHistogramDataPoint,
    scale=st.integers(-11, 21),
    positive=SIDES,
    negative=SIDES,
    zero_count=COUNTS,
    zero_threshold=st.sampled_from([0.0, 1e-3, 1.5]),
    sum=st.none() | NUMBERS,
    exemplars=EXEMPLARS,
    **COMMON,
)
SUMMARIES = st.builds(
    SummaryDataPoint,
    quantile_values=st.lists(
        st.builds(SummaryDataPoint.ValueAtQuantile, quantile=st.floats(-0.1, 1), value=NUMBERS), max_size=3
    ),
    count=COUNTS,
    sum=NUMBERS,
    **COMMON,
)


def metric(kind: str, name: str, unit: str, points: list[Any], temporality: int, monotonic: bool) -> Metric:
    found = Metric(name=name, unit=unit)
    data = getattr(found, kind)
    data.data_points.extend(points)
    if kind.endswith(("sum", "histogram")):
        data.aggregation_temporality = temporality
    if kind == "sum":
        data.is_monotonic = monotonic
    return found


KINDS = {
    "gauge": POINTS,
    "sum": POINTS,
    "histogram": HISTOGRAMS,
    "exponential_histogram": EXPONENTIALS,
    "summary": SUMMARIES,
}
METRICS = st.one_of(
    *(
        st.builds(
            metric,
            st.just(kind),
            st.sampled_from(["a", "b.c", "", "1", "a_total", "h_bucket"]),
            st.sampled_from(["", "s", "1", "By/s"]),
            st.lists(points, max_size=4),
            st.sampled_from([0, 2, 2, 2]),
            st.booleans(),
        )
        for kind, points in KINDS.items()
    )
)


def message(resources: list[tuple[list[KeyValue], list[Metric]]]) -> MetricsData:
    found = MetricsData()
    for attributes, metrics in resources:
        add = found.resource_metrics.add()
        add.resource.attributes.extend(attributes)
        add.scope_metrics.add().metrics.extend(metrics)
    return found


MESSAGES = st.lists(st.tuples(ATTRIBUTES, st.lists(METRICS, max_size=3)), max_size=3).map(message)


def requests(encoding: Encoding, entries: list[Entry], limit: int) -> list[Decoded]:
    """The decoded requests. Each has at most `limit` bytes, or one entry."""
    found = []
    for wave in in_waves(entries, limit):
        for request in encoding.requests(wave, limit):
            assert len(request.body) <= limit or len(request.entries) == 1
            decoded = decoded_v2(request.body) if isinstance(encoding, Version2) else decoded_v1(request.body)
            assert decoded.counts == request.sample_counts
            found.append(decoded)
    return found


def counted(decoded: list[Decoded]) -> Counter[Any]:
    """The number of samples of each series."""
    found: Counter[Any] = Counter()
    for one in decoded:
        for labels, samples in (*one.samples.items(), *one.histograms.items()):
            found[labels] += len(samples)
    return found


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.sampled_from([1 << 20, 10_000, 300]), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_batch_gives_valid_requests_of_both_versions(
    messages: list[MetricsData], limit: int, custom_buckets: bool
) -> None:
    options = Options(resource_constant_labels=ResourceLabels(("*",)))
    translation = Translation(options, lambda *_: None, target_info=True, custom_buckets=custom_buckets)
    second, first = Version2(), Version1(send_metadata=True)
    for message in messages:
        entries = translation.entries(message, NOW)
        sent = {(series.labels, series.is_native): len(samples) for series, samples in entries}
        assert len(sent) == len(entries)
        found = counted(requests(second, entries, limit))
        assert sum(found.values()) == sum(sent.values())
        old = with_classic_histograms(entries, custom_only=True)
        assert counted(requests(first, old, limit)).total() == sum(len(samples) for _, samples in old)
        plain = with_classic_histograms(entries, custom_only=False)
        assert not any(series.is_native for series, _ in plain)
        requests(first, plain, limit)


def test_a_request_has_at_most_10000_series() -> None:
    translation = Translation(Options(), lambda *_: None, target_info=False, custom_buckets=False)
    points = [number(float(series), {"series": series}) for series in range(12_006)]
    entries = translation.entries(data(gauge("hw.power", *points)), NOW)
    assert [len(request.entries) for request in Version2().requests(entries, 1 << 30)] == [10_000, 2_006]


@given(message=MESSAGES)
@settings(max_examples=100, deadline=None)
def test_any_batch_has_names_of_the_classic_patterns(message: MetricsData) -> None:
    options = Options(resource_constant_labels=ResourceLabels(("*",)), const_labels={"a-b": "c"})
    translation = Translation(options, lambda *_: None, target_info=True, custom_buckets=False)
    for series, _ in translation.entries(message, NOW):
        names = dict(zip(series.labels[::2], series.labels[1::2], strict=True))
        assert re.fullmatch("[a-zA-Z_:][a-zA-Z0-9_:]*", names["__name__"])
        assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) for name in names)
