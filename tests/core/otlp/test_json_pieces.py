"""A long document that is decoded item by item means what it means at once."""

import json
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import SIGNALS, Signal
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import to_json
from otel_zernel.otlp.json_decoding import decode_json
from otel_zernel.otlp.json_pieces import PIECE, parse_json, read_message
from otel_zernel.otlp.json_reading import MOST_VALUES, JsonReader, text_of
from tests.core.otlp.test_json_decoding import any_message

BLOCKS = st.sampled_from([1, 7, 64, 1 << 20])
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
VALUES = st.recursive(
    LEAVES, lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=3), one, max_size=4)
)
NAMES = ["resourceMetrics", "scopeMetrics", "metrics", "gauge", "sum", "dataPoints", "asInt", "scope", "name", "other"]


def in_pieces(signal: Signal, document: bytes | str, block: int) -> Message:
    reader, message = JsonReader(text_of(document), block), MESSAGE_TYPES[signal]()
    read_message(reader, message)
    reader.end()
    return message


@pytest.mark.parametrize("signal", SIGNALS)
@given(data=st.data(), block=BLOCKS)
def test_every_message_is_read_back_as_it_was_written(signal: Signal, data: st.DataObject, block: int) -> None:
    message = data.draw(any_message(signal))
    text = to_json(message)
    assert bits(decode_json(MESSAGE_TYPES[signal], text)) == bits(in_pieces(signal, text, block)) == bits(message)


def bits(message: Message) -> bytes:
    return message.SerializeToString(deterministic=True)


@given(data=st.data(), block=BLOCKS)
def test_any_document_means_the_same_in_pieces(data: st.DataObject, block: int) -> None:
    documents = st.recursive(
        LEAVES, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.sampled_from(NAMES), one, max_size=4)
    )
    text = json.dumps(data.draw(st.dictionaries(st.sampled_from(NAMES), documents, min_size=1)))
    try:
        expected = bits(decode_json(MetricsData, text))
    except DecodeError:
        with pytest.raises((ValueError, TypeError)):
            in_pieces("metrics", text, block)
    else:
        assert bits(in_pieces("metrics", text, block)) == expected


@given(value=VALUES, block=BLOCKS, indent=st.none() | st.integers(0, 2))
def test_a_value_is_that_of_json(value: Any, block: int, indent: int | None) -> None:
    reader = JsonReader(f" {json.dumps(value, indent=indent)}\n", block)
    assert reader.value() == value
    reader.end()


@given(data=st.data(), block=BLOCKS)
def test_a_damaged_document_is_refused_where_json_refuses_it(data: st.DataObject, block: int) -> None:
    text = json.dumps({"resourceMetrics": data.draw(VALUES)})
    at, new = (
        data.draw(st.integers(0, len(text) - 1)),
        data.draw(st.sampled_from(["", ",", "]", "}", "[", '"', "x", ":"])),
    )
    damaged = text[:at] + new + text[at + 1 :]

    def read() -> dict[str, Any]:
        reader = JsonReader(damaged, block)
        found = {
            name: [reader.value() for _ in reader.elements()] if reader.peek() == "[" else reader.value()
            for name in reader.properties()
        }
        reader.end()
        return found

    try:
        expected = json.loads(damaged)
    except ValueError:
        with pytest.raises(ValueError, match="line 1 column"):
            read()
    else:
        assert read() == expected


def records(*bodies: Any) -> bytes:
    one = [{"body": {"stringValue": body} if isinstance(body, str) else body} for body in bodies]
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": one}]}]}).encode()


def test_a_long_text_is_one_value() -> None:
    document = records("a" * 2 * PIECE, *map(str, range(5_000)), "ö\\" * PIECE)
    assert bits(parse_json(LogsData, document)) == bits(decode_json(LogsData, document))


def test_a_value_with_too_many_values_inside_is_refused() -> None:
    document = records({"arrayValue": {"values": [{"intValue": 1}] * (MOST_VALUES // 2)}})
    with pytest.raises(DecodeError, match=f"long values have more than {MOST_VALUES} values inside"):
        parse_json(LogsData, document)


@pytest.mark.parametrize("padding", [0, PIECE])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"caf\xe9", "caf\ufffd"),
        (rb"\ud800 \uDC00 \ud83d\ude00 \\ud800", "\ufffd \ufffd \U0001f600 \\ud800"),
    ],
)
def test_a_text_that_is_not_utf8_costs_no_item(padding: int, text: bytes, expected: str) -> None:
    record = b'{"body":{"stringValue":"' + text + b'"}},' + b" " * padding + b'{"body":{"stringValue":"good"}}'
    logs = parse_json(LogsData, b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[' + record + b"]}]}]}")
    assert isinstance(logs, LogsData)
    records = logs.resource_logs[0].scope_logs[0].log_records
    assert [record.body.string_value for record in records] == [expected, "good"]


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b'{"resourceLogs":[]}' + b" " * PIECE + b"x", "Extra data"),
        (b'{"resourceLogs":[' + b" " * PIECE, "Expecting value"),
        (b" " * PIECE + b'{"resourceLogs":{}}', "expected a JSON array"),
        (b" " * PIECE + b"[]", "expected a JSON object"),
        (b'{"resourceLogs":[' * 100_000, "recursion"),
    ],
)
def test_a_malformed_long_document_says_why(document: bytes, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        parse_json(LogsData, document)


def test_the_last_of_equal_names_counts() -> None:
    document = '{"resourceLogs":[{}],"resourceLogs":[{},{}],"other":1}' + " " * PIECE
    assert bits(parse_json(LogsData, document)) == bits(decode_json(LogsData, document))
    document = '{"resourceLogs":[{}],"resourceLogs":null}' + " " * PIECE
    assert not bits(parse_json(LogsData, document))
