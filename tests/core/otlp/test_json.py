"""OTLP/JSON is written as the specification demands, and read back."""

import json

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Exemplar,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_json, to_json
from tests import otlp

DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
TRACE_ID, SPAN_ID, PARENT_ID = bytes(range(0xE0, 0xF0)), bytes.fromhex("00f067aa0ba902b7"), bytes([255] * 8)
LOOKS_LIKE_AN_ID = '"traceId":"AAAA"'


def traces(attribute: str = "") -> TracesData:
    span = Span(
        trace_id=TRACE_ID,
        span_id=SPAN_ID,
        parent_span_id=PARENT_ID,
        name="step",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=2**63 + 1,
        links=[Span.Link(trace_id=TRACE_ID, span_id=PARENT_ID)],
        attributes=[KeyValue(key="traceId", value=AnyValue(string_value=attribute))],
    )
    return otlp.traces(span)


def metrics() -> MetricsData:
    point = HistogramDataPoint(
        count=2**60, bucket_counts=[1, 2], exemplars=[Exemplar(trace_id=TRACE_ID, span_id=SPAN_ID, as_double=0.5)]
    )
    metric = Metric(name="latency", histogram=Histogram(aggregation_temporality=DELTA, data_points=[point]))
    return otlp.data(metric)


def test_ids_of_spans_and_links_are_in_hex() -> None:
    span = json.loads(to_json(traces()))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert (span["traceId"], span["spanId"], span["parentSpanId"]) == (TRACE_ID.hex(), SPAN_ID.hex(), PARENT_ID.hex())
    assert span["links"] == [{"traceId": TRACE_ID.hex(), "spanId": PARENT_ID.hex()}]


def test_ids_of_exemplars_are_in_hex() -> None:
    metric = json.loads(to_json(metrics()))["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    exemplar = metric["histogram"]["dataPoints"][0]["exemplars"][0]
    assert (exemplar["traceId"], exemplar["spanId"]) == (TRACE_ID.hex(), SPAN_ID.hex())


def test_enums_are_integers_and_64_bit_integers_strings() -> None:
    span = json.loads(to_json(traces()))["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    metric = json.loads(to_json(metrics()))["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0]
    assert span["kind"] == 3
    assert span["startTimeUnixNano"] == str(2**63 + 1)
    assert metric["histogram"]["aggregationTemporality"] == 1
    assert metric["histogram"]["dataPoints"][0]["count"] == str(2**60)


def test_a_document_is_one_line() -> None:
    assert b"\n" not in to_json(traces("two\nlines"))


def test_text_that_looks_like_an_id_is_unchanged() -> None:
    assert parse_json(TracesData, to_json(traces(LOOKS_LIKE_AN_ID))) == traces(LOOKS_LIKE_AN_ID)


def test_unknown_fields_are_ignored() -> None:
    assert parse_json(MetricsData, '{"resourceMetrics": [], "ofTheFuture": {"traceId": "0a"}}') == MetricsData()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"\xff",
        b"{",
        b'{"resourceSpans": 3}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": 12.5}]}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"startTimeUnixNano": "soon"}]}]}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_invalid_otlp_raises_a_decode_error(text: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_json(TracesData, text)
