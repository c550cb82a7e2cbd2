"""The decoder of OTLP/JSON agrees with protobuf's own, and takes nothing that protobuf could not parse afterwards."""

import base64
import json
import math
from contextlib import suppress
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import SIGNALS, Signal
from otel_zernel.batch.signals import MESSAGE_TYPES
from otel_zernel.errors import DecodeError
from otel_zernel.otlp.json import parse_json
from otel_zernel.otlp.json_decoding import decode_json

IDS = frozenset({"traceId", "spanId", "parentSpanId", "profileId"})

SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_STRING: st.text(max_size=5),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 40),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False) | st.just(float("nan")),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
}


@st.composite
def messages(draw: st.DrawFn, descriptor: Descriptor, depth: int = 14) -> dict[str, Any]:
    """The arguments of a message's constructor: a few of its fields, at most one of each oneof."""
    arguments: dict[str, Any] = {}
    chosen = draw(st.lists(st.sampled_from(list(descriptor.fields)), max_size=4, unique_by=_oneof)) if depth else []
    for field in chosen:
        one = messages(field.message_type, depth - 1) if field.message_type else _scalar(field)
        arguments[field.name] = draw(st.lists(one, max_size=3) if field.is_repeated else one)
    return arguments


def _oneof(field: FieldDescriptor) -> str:
    oneof = field.containing_oneof
    return oneof.name if oneof else field.name


def _scalar(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    return st.binary(max_size=16) if field.type == FieldDescriptor.TYPE_BYTES else SCALARS[field.cpp_type]


def any_message(signal: Signal) -> st.SearchStrategy[Message]:
    type_ = MESSAGE_TYPES[signal]
    return messages(type_.DESCRIPTOR).map(lambda arguments: type_(**arguments))


def _bits(message: Message) -> bytes:
    """Compares NaN as equal. JSON has one NaN: `messages` draws no other."""
    return message.SerializeToString(deterministic=True)


def _by_name(descriptor: Descriptor, seen: dict[str, Descriptor | None]) -> dict[str, Descriptor | None]:
    """All names in JSON below a message, and the message type of each."""
    for field in descriptor.fields:
        if field.json_name not in seen:
            seen[field.json_name] = field.message_type
            if field.message_type:
                _by_name(field.message_type, seen)
    return seen


NAMES = sorted({name for type_ in MESSAGE_TYPES.values() for name in _by_name(type_.DESCRIPTOR, {})})
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "a", "0a", "NaN", "-Infinity", "1e3", "1.5", "-7", " 1", "1_0", "AA==", "\udc80", "²", "9" * 30]
    ),
)


def documents(descriptor: Descriptor, depth: int) -> st.SearchStrategy[Any]:
    """JSON that resembles a message: mostly its own names, and some values of wrong types."""
    if not depth:
        return st.just({})
    fields = {field.json_name: _document(field, depth - 1) for field in descriptor.fields}
    known = st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True)
    objects = known.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names}))
    wrong = st.dictionaries(st.sampled_from(NAMES), LEAVES, max_size=2)
    return st.one_of(objects, objects, wrong)


def _document(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    message = field.message_type
    one = st.deferred(lambda: documents(message, depth)) if message else LEAVES
    return st.lists(one, max_size=3) if field.is_repeated else one


@pytest.mark.parametrize("signal", SIGNALS)
@given(data=st.data())
def test_a_document_that_protobuf_accepts_means_the_same_here(signal: Signal, data: st.DataObject) -> None:
    document = data.draw(documents(MESSAGE_TYPES[signal].DESCRIPTOR, 10))
    try:
        _check_types(document, MESSAGE_TYPES[signal].DESCRIPTOR)
        expected: Message = json_format.ParseDict(
            _ids_in_base64(document), MESSAGE_TYPES[signal](), ignore_unknown_fields=True
        )
        expected.SerializeToString()
    except (json_format.ParseError, ValueError, TypeError, AttributeError):
        expected = MESSAGE_TYPES[signal]()
        _decodes_or_says_why(signal, json.dumps(document))
    else:
        assert _bits(decode_json(MESSAGE_TYPES[signal], json.dumps(document))) == _bits(expected)


def _check_types(document: Any, descriptor: Descriptor) -> None:
    """Raises `ValueError` for wrong types that `json_format` takes: text as an object, true as 1.0."""
    if not isinstance(document, dict):
        raise ValueError("not an object")
    for name, value in document.items():
        field = next((field for field in descriptor.fields if field.json_name == name), None)
        if field is None or value is None:
            continue
        if field.is_repeated and not isinstance(value, list):
            raise ValueError("not an array")
        for one in value if field.is_repeated else [value]:
            if field.message_type:
                _check_types(one, field.message_type)
            elif isinstance(one, bool) and field.cpp_type != FieldDescriptor.CPPTYPE_BOOL:
                raise ValueError("not a number")


def _ids_in_base64(value: Any) -> Any:
    if isinstance(value, list):
        return [_ids_in_base64(one) for one in value]
    if not isinstance(value, dict):
        return value
    ids = {name: base64.b64encode(bytes.fromhex(_text(one))).decode() for name, one in value.items() if name in IDS}
    return {name: ids.get(name, _ids_in_base64(one)) for name, one in value.items()}


def _text(value: object) -> str:
    if not isinstance(value, str) or " " in value:
        raise ValueError("not an id")
    return value


@pytest.mark.parametrize("signal", SIGNALS)
@given(
    text=st.one_of(st.text(), st.binary(), st.recursive(LEAVES, lambda one: st.lists(one, max_size=3)).map(json.dumps))
)
def test_any_text_decodes_or_raises_a_decode_error(signal: Signal, text: str | bytes) -> None:
    _decodes_or_says_why(signal, text)


def _decodes_or_says_why(signal: Signal, text: str | bytes) -> None:
    with suppress(DecodeError):
        decode_json(MESSAGE_TYPES[signal], text).SerializeToString()


def nested(kind: str, levels: int) -> str:
    """A document with a point whose exemplar has a deeply nested attribute, the deepest place for one."""
    if kind == "array":
        value = '{"arrayValue":{"values":[' * levels + "{}" + "]}}" * levels
    else:
        value = '{"kvlistValue":{"values":[{"value":' * levels + "{}" + "}]}}" * levels
    point = f'{{"exemplars":[{{"filteredAttributes":[{{"key":"a","value":{value}}}]}}]}}'
    metric = f'{{"exponentialHistogram":{{"dataPoints":[{point}]}}}}'
    return f'{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}'


@pytest.mark.parametrize("kind", ["array", "kvlist"])
@pytest.mark.parametrize("levels", [20, 26, 27, 39, 40, 41, 200])
def test_values_keep_what_protobuf_can_parse_of_their_nesting(kind: str, levels: int) -> None:
    decoded = decode_json(MetricsData, nested(kind, levels))
    assert MetricsData.FromString(decoded.SerializeToString()) == decoded
    assert ("nested more than" in str(decoded)) == (levels > {"array": 39, "kvlist": 26}[kind])


def test_names_of_protobuf_are_unknown_names() -> None:
    assert decode_json(MetricsData, '{"resource_metrics": [{}]}') == MetricsData()


def test_null_is_a_missing_field() -> None:
    assert decode_json(LogsData, '{"resourceLogs": null}') == LogsData()


@pytest.mark.parametrize("number", ["7", '"7"', "7.0", '"7.0"'])
def test_64_bit_integers_are_numbers_or_strings(number: str) -> None:
    body = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{{"intValue":{number}}}}}]}}]}}]}}'
    decoded = decode_json(LogsData, body)
    assert decoded.resource_logs[0].scope_logs[0].log_records[0].body == AnyValue(int_value=7)


def double(number: str) -> float:
    """The value of a log record whose body is this number."""
    document = f'{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{{"body":{{"doubleValue":{number}}}}}]}}]}}]}}'
    record = decode_json(LogsData, document).resource_logs[0].scope_logs[0].log_records[0]
    assert (
        parse_json(LogsData, document.encode().ljust(1 << 20)).resource_logs[0].scope_logs[0].log_records[0] == record
    )
    return record.body.double_value


@pytest.mark.parametrize("number", ["-0", '"-0"', "-0.0", "-0e1"])
def test_minus_zero_keeps_its_sign(number: str) -> None:
    assert math.copysign(1, double(number)) == -1


@pytest.mark.parametrize("number", ["1e400", '"1e400"', "-1e400", '"-1e400"', "9" * 400])
def test_a_number_that_is_too_large_is_refused(number: str) -> None:
    with pytest.raises(DecodeError):
        double(number)


def test_infinity_is_a_text() -> None:
    assert [double('"Infinity"'), double('"-Infinity"')] == [math.inf, -math.inf]


def test_an_error_quotes_the_start_of_the_wrong_value() -> None:
    with pytest.raises(DecodeError, match="expected a JSON array, not 'xxxx"):
        decode_json(TracesData, json.dumps({"resourceSpans": "x" * 1000}))


def test_a_document_of_empty_objects_is_refused_before_it_is_parsed() -> None:
    for brackets in ("{}", "[]"):
        with pytest.raises(DecodeError, match="too many empty objects or arrays"):
            decode_json(MetricsData, '{"resourceMetrics":[' + f"{brackets}," * 200_000 + brackets + "]}")
