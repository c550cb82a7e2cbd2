"""What the file exporter wrote is replayed, message by message: every kind of metric, spans, log records, any value."""

import asyncio
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_zernel.batch import STABLE_SIGNALS, Batch, Signal
from otel_zernel.batch.signals import MESSAGE_TYPES, SignalData
from otel_zernel.batch.thin import LEVELS
from otel_zernel_receivers.otlp_json_file.records import signal_of
from tests.receivers.otlp_json_file.replaying import FORMATS, Replay, gauge, log, span, write

_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    # JSON has one NaN.
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False)
    | st.sampled_from([-0.0, float("inf"), float("nan"), 5e-324]),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 9),
}
_TEXTS = st.text(max_size=5) | st.sampled_from(
    ['"traceId":"AAAA"', "two\nlines", "\0\x1b\u2028", "resourceSpans", "😀"]
)
_ID_FIELDS = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}


def _value(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        return _fields(field.message_type, depth - 1)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        is_bytes = field.type == FieldDescriptor.TYPE_BYTES
        length = _ID_FIELDS.get(field.name)
        return st.binary(min_size=length or 0, max_size=length or 5) if is_bytes else _TEXTS
    return _NUMBERS[field.cpp_type]


@cache
def _fields(message: Descriptor, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Any fields of a message, up to a depth of messages. Of a oneof at most one."""
    groups: dict[str, list[FieldDescriptor]] = {}
    for field in message.fields:
        if field.message_type is None or depth > 0:
            groups.setdefault(field.containing_oneof.name if field.containing_oneof else field.name, []).append(field)
    one_of_each = {name: st.sampled_from(fields).flatmap(lambda f: _named(f, depth)) for name, fields in groups.items()}
    chosen = st.fixed_dictionaries({}, optional=one_of_each)
    return chosen.map(lambda by_group: dict(by_group.values()))


def _named(field: FieldDescriptor, depth: int) -> st.SearchStrategy[tuple[str, Any]]:
    value = _value(field, depth)
    repeated = st.lists(value, min_size=1, max_size=2) if field.is_repeated else value
    return repeated.map(lambda one: (field.name, one))


def _message(signal: Signal) -> st.SearchStrategy[SignalData]:
    """A message with one item that has any fields."""
    of_item = {"metrics": ("resource_metrics", "scope_metrics", "metrics")}
    of_item |= {
        "traces": ("resource_spans", "scope_spans", "spans"),
        "logs": ("resource_logs", "scope_logs", "log_records"),
    }
    type_: Any = MESSAGE_TYPES[signal]
    resources, scopes, items = LEVELS[signal]
    resource = _nested(type_.DESCRIPTOR, resources)
    scope = _nested(resource, scopes)
    holders = st.tuples(_fields(resource, 2), _fields(scope, 2), _fields(_nested(scope, items), 5))
    return holders.map(lambda of: type_(**{resources: [{**of[0], scopes: [{**of[1], items: [of[2]]}]}]}))


def _nested(message: Descriptor, field: str) -> Descriptor:
    nested = message.fields_by_name[field].message_type
    assert nested
    return nested


def encoded(message: Message) -> bytes:
    """The message without the differences that equality of NaN makes."""
    return message.SerializeToString(deterministic=True)


def replayed(written: Batch, settings: dict[str, Any], **config: Any) -> tuple[list[Batch], dict[str, int]]:
    async def run() -> tuple[list[Batch], dict[str, int]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "out"
            await write(path, written, **settings)
            replay = Replay()
            return await replay.run(path, **config), replay.dropped

    return asyncio.run(run())


@pytest.mark.parametrize("signal", STABLE_SIGNALS)
@pytest.mark.parametrize("settings_", FORMATS, ids=str)
@settings(max_examples=20)
@given(data=st.data())
def test_any_message_is_replayed_as_it_was_written(
    signal: Signal, settings_: dict[str, Any], data: st.DataObject
) -> None:
    message = data.draw(_message(signal))
    before = encoded(message)
    batch = Batch.encoded(signal, message.SerializeToString(), 1)
    came, dropped = replayed(batch, settings_, signal=signal)
    assert not dropped
    if signal == "metrics" and not Batch.from_bytes(metrics=before).point_count:
        return  # a batch without points is not emitted
    assert [encoded(one.message(signal)) for one in came] == [before]


@pytest.mark.parametrize("settings_", FORMATS, ids=str)
def test_the_signals_of_one_file_are_told_apart(settings_: dict[str, Any]) -> None:
    every = Batch(gauge(7).edit_metrics(), span().edit_spans(), log().edit_logs())
    came, dropped = replayed(every, settings_)
    assert not dropped
    assert [one.signals for one in came] == [("metrics",), ("traces",), ("logs",)]
    assert [one.bytes_of(one.signals[0]) for one in came] == [every.bytes_of(signal) for signal in STABLE_SIGNALS]


@given(st.binary(min_size=16, max_size=16), st.integers(1, 2**64 - 1), _TEXTS)
def test_the_signal_of_protobuf_is_found_by_its_content(trace_id: bytes, time_ns: int, text: str) -> None:
    metric, traced, logged = gauge(1, time_ns), span(), log(time_ns)
    metric.edit_metrics().resource_metrics[0].scope_metrics[0].metrics[0].name = "n" + text
    one = traced.edit_spans().resource_spans[0].scope_spans[0].spans[0]
    one.trace_id, one.name, one.start_time_unix_nano = trace_id, text, time_ns
    logged.edit_logs().resource_logs[0].scope_logs[0].log_records[0].body.string_value = text
    assert signal_of(metric.bytes_of("metrics")) == "metrics"
    assert signal_of(traced.bytes_of("traces")) == "traces"
    assert signal_of(logged.bytes_of("logs")) == "logs"


@pytest.mark.parametrize("size", range(60, 130))
def test_protobuf_of_any_length_is_not_taken_for_json(size: int) -> None:
    """The first two bytes of a message with 123 bytes are a line end and a brace."""
    batch = log()
    batch.edit_logs().resource_logs[0].schema_url = "x" * (size - 30)
    came, dropped = replayed(batch, {"format": "proto"})
    assert not dropped
    assert came[0].bytes_of("logs") == batch.bytes_of("logs")


@settings(max_examples=20)
@given(st.binary(max_size=300))
def test_any_bytes_are_a_batch_or_a_counted_loss(content: bytes) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            for head in (b"", b"{", b"\0\0", b"\0\0\0\x05", b"\x1f\x8b", b"\x28\xb5\x2f\xfd"):
                path = Path(folder) / "out"
                path.write_bytes(head + content)
                await Replay().run(path, speed=1)

    asyncio.run(run())
