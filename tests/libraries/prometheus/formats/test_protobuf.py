"""The protobuf format: a reader of its messages finds the samples of the text format, and native histograms."""

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, MetricsData
from prometheus_client.parser import text_string_to_metric_families as parse_text

from otel_zernel.otlp.points import key_values
from otel_zernel_libraries.prometheus import Format, Options, Page
from tests.libraries.prometheus.formats.delimited import Sample, families, samples
from tests.libraries.prometheus.shown import PROTOBUF, TEXT, Shown
from tests.libraries.prometheus.test_parsing import BATCHES
from tests.otlp import (
    DELTA,
    NOW,
    SECOND,
    data,
    exponential,
    gauge,
    histogram,
    node,
    number,
    summary,
    total,
)


def by_text(page: bytes) -> dict[Sample, float]:
    """The samples of a page in the text format, with bounds as numbers."""
    found: dict[Sample, float] = {}
    for family in parse_text(page.decode()):
        for sample in family.samples:
            is_bucket = family.type == "histogram" and sample.name == f"{family.name}_bucket"
            bounds = {"le": repr(float(sample.labels["le"]))} if is_bucket else {}
            found[sample.name, frozenset((sample.labels | bounds).items())] = sample.value
    return found


def equal(one: float, other: float) -> bool:
    return float(one) == float(other) or (math.isnan(one) and math.isnan(other))


@given(st.lists(BATCHES, max_size=3), st.booleans())
def test_every_sample_of_the_text_format_is_in_the_messages(batches: list[MetricsData], stamped: bool) -> None:
    page = Page(Options(send_timestamps=stamped, native_histograms=False))
    for batch in batches:
        page.update(batch, 0)
    text, messages = by_text(page.render(TEXT, 0)), samples(page.render(PROTOBUF, 0))
    assert {key for key in text if key not in messages or not equal(text[key], messages[key])} == set()
    for name, labels in messages.keys() - text.keys():  # the text format omits the sums that may decrease
        assert name.endswith(("_count", "_sum"))
        assert name.endswith("_count") or math.isnan(messages[name, labels])


@given(st.lists(BATCHES, max_size=3))
def test_native_buckets_have_the_counts_of_the_classic_ones(batches: list[MetricsData]) -> None:
    page = Page()
    for batch in batches:
        page.update(batch, 0)
    for family in families(page.render(PROTOBUF, 0)):
        natives = [one.histogram for one in family.metric if one.histogram.HasField("schema")]
        assert len(natives) in (0, len(family.metric))
        for native in natives:
            sides = (native.negative_span, native.negative_delta), (native.positive_span, native.positive_delta)
            assert [sum(span.length for span in spans) for spans, _ in sides] == [len(deltas) for _, deltas in sides]
            counts = [sum(accumulate(deltas)) for _, deltas in sides]
            assert native.zero_count + sum(counts) == native.sample_count == native.bucket[-1].cumulative_count


@pytest.mark.parametrize("stamped", [False, True])
def test_a_node_has_the_same_samples_types_and_helps_in_both_formats(stamped: bool) -> None:
    page = Page(Options(send_timestamps=stamped))
    page.update(node(), 0)
    text, messages = by_text(page.render(TEXT, 0)), samples(page.render(PROTOBUF, 0))
    assert text.keys() == messages.keys()
    assert all(equal(text[key], messages[key]) for key in text)
    helps = {family.name: family.help for family in families(page.render(PROTOBUF, 0))}
    assert helps["hw_energy_joules_total"] == "Energy\\consumed\nsince boot."
    units = {family.name: family.unit for family in families(page.render(PROTOBUF, 0)) if family.unit}
    assert units["hw_energy_joules_total"] == "joules"
    times = {metric.timestamp_ms for family in families(page.render(PROTOBUF, 0)) for metric in family.metric}
    assert times == ({0, NOW // 10**6} if stamped else {0})


def test_an_exponential_histogram_is_native_with_classic_buckets_beside(shown: Shown) -> None:
    slow = Exemplar(as_double=5.0, trace_id=b"\1" * 16, time_unix_nano=NOW, filtered_attributes=key_values({"step": 3}))
    shown.update(exponential("a", 1, (2, [4, 0, 1]), (0, [3]), zero_count=2, sum_=9.5, exemplars=(slow,)))
    [family] = families(shown.page.render(PROTOBUF, 0))
    one = family.metric[0].histogram
    assert (one.schema, one.zero_count, one.sample_count, one.sample_sum) == (1, 2, 10, 9.5)
    assert [(span.offset, span.length) for span in one.positive_span] == [(3, 3)]
    assert list(one.positive_delta) == [4, -4, 1]
    assert [(span.offset, span.length) for span in one.negative_span] == [(1, 1)]
    assert list(one.negative_delta) == [3]
    assert (one.bucket[0].cumulative_count, one.bucket[-1].cumulative_count) == (5, 10)
    assert one.bucket[-1].upper_bound == math.inf
    [exemplar] = one.exemplars
    assert {pair.name: pair.value for pair in exemplar.label} == {"trace_id": "01" * 16, "step": "3"}
    assert (exemplar.value, exemplar.timestamp.ToNanoseconds()) == (5.0, NOW)
    assert [bucket.exemplar.value for bucket in one.bucket if bucket.HasField("exemplar")] == [5.0]


def test_native_histograms_can_be_turned_off() -> None:
    shown = Shown(native_histograms=False)
    shown.update(exponential("a", 0, (0, [1]), sum_=1.5))
    [family] = families(shown.page.render(PROTOBUF, 0))
    assert not family.metric[0].histogram.HasField("schema")
    assert family.metric[0].histogram.bucket[-1].cumulative_count == 1


def test_scales_above_8_are_merged_and_those_below_minus_4_are_classic_only(shown: Shown) -> None:
    shown.update(exponential("fine", 12, (16, [1] * 32)), exponential("coarse", -5, (0, [7])))
    fine, coarse = (family.metric[0].histogram for family in families(shown.page.render(PROTOBUF, 0)))
    assert (fine.schema, list(fine.positive_delta)) == (8, [16, 0])
    assert not coarse.HasField("schema")
    assert not coarse.positive_span
    assert coarse.sample_count == 7


def test_a_sum_that_the_sender_does_not_know_is_not_a_number(shown: Shown) -> None:
    shown.update(exponential("a", 0, (0, [1])))
    [family] = families(shown.page.render(PROTOBUF, 0))
    assert math.isnan(family.metric[0].histogram.sample_sum)


def test_native_and_classic_series_of_one_name_are_two_messages(shown: Shown) -> None:
    """Some releases of Prometheus judge all series of a message by the first one."""
    shown.update(histogram("a", [1.0], [1, 2], 3.0), resource={"service.name": "b"})
    shown.update(exponential("a", 0, (0, [1]), sum_=1.5), resource={"service.name": "c"})
    native, classic = families(shown.page.render(PROTOBUF, 0))
    assert native.name == classic.name
    assert native.metric[0].histogram.HasField("schema")
    assert [len(native.metric), len(classic.metric)] == [1, 1]
    assert not classic.metric[0].histogram.HasField("schema")


def test_counters_summaries_and_histograms_say_since_when_they_count(shown: Shown) -> None:
    start = NOW - 5 * SECOND
    metrics = (
        total("counter", number(1, start_time_unix_nano=start)),
        summary("summary", {}, 1, 1.0),
        histogram("histogram", [1.0], [1, 2], 3.0),
        exponential("exponential", 0, (0, [1])),
    )
    for metric in metrics[1:]:
        getattr(metric, str(metric.WhichOneof("data"))).data_points[0].start_time_unix_nano = start
    shown.update(*metrics)
    bodies = [
        metric.counter
        if metric.HasField("counter")
        else metric.summary
        if metric.HasField("summary")
        else metric.histogram
        for family in families(shown.page.render(PROTOBUF, 0))
        for metric in family.metric
    ]
    assert [body.created_timestamp.ToNanoseconds() for body in bodies] == [start] * 4


def test_a_restarted_counter_has_its_new_start_and_deltas_keep_the_first_one(shown: Shown) -> None:
    for start, value in ((1, 5), (2 * SECOND, 3)):
        point = number(value, time=NOW + start, start_time_unix_nano=start)
        shown.update(total("a", point), total("b", point, temporality=DELTA))
        shown.page.render(PROTOBUF, 0)
    found = {
        family.name: (family.metric[0].counter.value, family.metric[0].counter.created_timestamp.ToNanoseconds())
        for family in families(shown.page.render(PROTOBUF, 0))
    }
    assert found == {"a_total": (3, 2 * SECOND), "b_total": (8, 1)}


def test_a_gauge_without_a_start_has_no_created_timestamp(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), total("b", number(1)))
    _, counter = families(shown.page.render(PROTOBUF, 0))
    assert not counter.metric[0].counter.HasField("created_timestamp")


def test_counters_have_their_exemplar(shown: Shown) -> None:
    exemplar = Exemplar(as_int=7, span_id=b"12345678", time_unix_nano=NOW)
    shown.update(total("a", number(1, exemplars=[exemplar])))
    [family] = families(shown.page.render(PROTOBUF, 0))
    found = family.metric[0].counter.exemplar
    assert (found.value, found.label[0].name, found.timestamp.seconds) == (7, "span_id", NOW // SECOND)


def test_target_info_is_a_gauge_with_the_resource(shown: Shown) -> None:
    shown.update(gauge("a", number(1)), resource={"service.name": "llm", "host.name": 'n"1\\\n'})
    info, _ = families(shown.page.render(PROTOBUF, 0))
    assert (info.name, info.metric[0].gauge.value) == ("target_info", 1)
    assert {pair.name: pair.value for pair in info.metric[0].label} == {"job": "llm", "host_name": 'n"1\\\n'}


@given(st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=8), max_size=3))
def test_any_label_survives_unescaped(attributes: dict[str, str]) -> None:
    page = Page(Options(translation_strategy="NoTranslation"))
    names = {name: value for name, value in attributes.items() if not name.startswith("__")}
    page.update(data(gauge("a.b", number(1, names))), 0)
    [family] = families(page.render(Format(protobuf=True, utf8=True), 0))
    assert family.name == "a.b"
    assert {pair.name: pair.value for pair in family.metric[0].label} == {k: v for k, v in names.items() if v}
