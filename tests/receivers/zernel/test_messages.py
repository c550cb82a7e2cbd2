"""A message of the feed becomes metrics; every field is optional, and nothing in it can harm.

Texts that are not UTF-8 and a deep value in a message of the feed cost nothing else and no connection.
"""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection, serve

from otel_zernel.testing import until
from otel_zernel_receivers.zernel.message import MOST_PROCESSES, FeedMessage, UnreadableMessage, read_message
from otel_zernel_receivers.zernel.series import FeedSeries
from tests.receivers.damaged_texts import BAD
from tests.receivers.zernel.feeds import WHOLE, Row, receiving, rows_of

PROCESS = (("process.pid", 7), ("zernel.gpu.index", 0))


def rows(*messages: dict[str, Any]) -> list[Row]:
    """The points of the last message."""
    series = FeedSeries({})
    found: list[Row] = []
    for message in messages:
        found = rows_of(series.batch(read_message(json.dumps(message).encode()), 1))
        series.accepted()
    return found


def test_a_whole_message_becomes_metrics_with_our_names_and_units() -> None:
    assert rows(WHOLE) == [
        ("zernel.cuda.memory.used", PROCESS, 5),
        ("zernel.cuda.memory.peak", PROCESS, 9),
        ("zernel.feed.last_update", (), 1_700_000_000.123),
        ("zernel.cuda.launch.latency.percentiles", (), {0.5: pytest.approx(7.5e-6), 0.99: pytest.approx(80e-6)}),
        (
            "zernel.nccl.collective.duration.percentiles",
            (("zernel.nccl.operation", "all_reduce"),),
            {0.5: pytest.approx(1.5e-3), 0.99: pytest.approx(9e-3)},
        ),
        ("zernel.dataloader.wait.percentiles", (), {0.5: pytest.approx(2.5e-3)}),
    ]


@pytest.mark.parametrize("field", [*WHOLE])
@pytest.mark.parametrize("absent", ["missing", None, 0])
def test_every_field_is_optional(field: str, absent: object) -> None:
    message = {name: value for name, value in WHOLE.items() if name != field}
    if absent != "missing":
        message[field] = [] if absent == 0 and field == "gpu_utilization" else absent
    found = read_message(json.dumps(message).encode())
    assert found.faults == 0
    assert len(rows(message)) < len(rows(WHOLE)) or field.startswith(("cuda", "nccl"))


@pytest.mark.parametrize("field", [*WHOLE])
@pytest.mark.parametrize("wrong", ["text", -1, True, {}, 1e300, float("nan"), float("inf"), 10**400])
def test_a_wrong_field_is_counted_and_the_others_are_read(field: str, wrong: object) -> None:
    message = read_message(json.dumps({**WHOLE, field: wrong}).encode())
    assert message.faults == 1
    expected = len(WHOLE) - 1
    assert bool(message.memory) + len(message.latencies) + bool(message.last_update_ms) == expected


@pytest.mark.parametrize(
    "item",
    [
        *(None, 7, [], {}, {"key": 7}, {"key": "7"}, {"key": "7:"}, {"key": ":0"}, {"key": "x:0"}),
        *({"key": "7:0:1"}, {"key": "12345678901:0"}, {"key": "7:" + "9" * 65}, {"key": "7:a b"}),
    ],
)
def test_an_item_without_a_process_and_a_gpu_is_counted(item: object) -> None:
    message = read_message(json.dumps({"gpu_utilization": [item, *WHOLE["gpu_utilization"]]}).encode())  # type: ignore[misc]
    assert (message.faults, len(message.memory)) == (1, 1)


def test_a_gpu_without_a_number_keeps_its_name() -> None:
    found = rows({"gpu_utilization": [{"key": "7:unknown", "current_bytes": 1}]})
    assert found[0][1] == (("process.pid", 7), ("zernel.gpu.index", "unknown"))


def test_more_processes_than_the_limit_are_counted() -> None:
    items = [{"key": f"{pid}:0", "current_bytes": 1} for pid in range(MOST_PROCESSES + 5)]
    message = read_message(json.dumps({"gpu_utilization": items}).encode())
    assert (len(message.memory), message.surplus) == (MOST_PROCESSES, 5)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"7", b"null", b'"x"', b"[" * 100_000, b"\xff", b"9" * 5000])
def test_a_message_that_is_no_object_is_unreadable(data: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        read_message(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
items = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("key", "current_bytes", "peak_bytes"), json_values)
) | st.fixed_dictionaries({"key": st.just("7:0")}, optional={"current_bytes": json_values, "peak_bytes": json_values})
messages = st.fixed_dictionaries(
    {},
    optional={
        "gpu_utilization": st.lists(items | json_values, max_size=5) | json_values,
        **{name: json_values for name in WHOLE if name != "gpu_utilization"},
    },
)


@given(messages)
def test_no_message_of_the_right_form_is_fatal(message: dict[str, Any]) -> None:
    found = read_message(json.dumps(message).encode())
    series = FeedSeries({})
    assert len(rows_of(series.batch(found, 1))) <= 2 * len(found.memory) + 4
    series.accepted()
    assert all(value is None for _, _, value in rows_of(series.ends(2)))


@given(st.text().map(lambda text: text.encode(errors="surrogatepass")) | st.binary())
def test_no_text_is_fatal(data: bytes) -> None:
    with contextlib.suppress(UnreadableMessage):
        assert isinstance(read_message(data), FeedMessage)


def test_what_is_missing_from_a_message_ends() -> None:
    found = rows(WHOLE, {"gpu_utilization": [{"key": "8:0", "current_bytes": 1}], "dataloader_wait_p50_ms": 1.0})
    ended = [(name, attributes) for name, attributes, value in found if value is None]
    assert ended == [
        ("zernel.cuda.memory.used", PROCESS),
        ("zernel.cuda.memory.peak", PROCESS),
        ("zernel.feed.last_update", ()),
        ("zernel.cuda.launch.latency.percentiles", ()),
        ("zernel.nccl.collective.duration.percentiles", (("zernel.nccl.operation", "all_reduce"),)),
    ]
    assert len(found) == len(ended) + 3


def test_an_end_that_was_refused_is_repeated() -> None:
    series = FeedSeries({})
    series.batch(read_message(json.dumps(WHOLE).encode()), 1)
    series.accepted()
    first = rows_of(series.ends(2))
    assert rows_of(series.ends(3)) == first
    series.accepted()
    assert series.ends(4).item_count == 0


DEEP = '{"a":' * 200 + "1" + "}" * 200


async def test_the_other_fields_of_a_damaged_message_arrive() -> None:
    damage = b'"comment": "%s", "%s": 1, "deep": %s, ' % (BAD, BAD, DEEP.encode())
    message = json.dumps(WHOLE).encode().replace(b"{", b"{" + damage, 1)
    clients = []

    async def feed(connection: ServerConnection) -> None:
        clients.append(connection)
        await connection.send(message, text=True)
        await connection.wait_closed()

    async with serve(feed, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with receiving(f"ws://127.0.0.1:{port}") as (received, context):
            await until(lambda: received.batches)
            assert not context.health.sentences(0)
    assert rows_of(received.batches[0]) == rows(WHOLE)
    assert len(clients) == 1
