"""Clients of the feed that read nothing hold a bounded number of bytes together."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from otel_zernel.runtime.tasks import cancel
from otel_zernel.testing import FakeClock, make_context, until
from otel_zernel_libraries.cluster.messages import Heartbeat
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.http import feed as feed_module
from otel_zernel_receivers.heartbeat.http.body import all_telemetry
from otel_zernel_receivers.heartbeat.http.feed import WorkerFeed
from tests.receivers.heartbeat.workers import SENDER

WORKERS, STATES = 200, 3


class Reader:
    """A client that takes messages while its gate is open."""

    def __init__(self, feed: WorkerFeed) -> None:
        self.gate = asyncio.Event()
        self.messages: list[dict[str, Any]] = []
        self._connecting = [{"type": "websocket.connect"}]
        scope = {"path_params": {}, "query_string": b""}
        self.task = asyncio.create_task(feed.serve(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        return self._connecting.pop() if self._connecting else await asyncio.Event().wait() and {}

    async def _send(self, message: dict[str, Any]) -> None:
        if message["type"] == "websocket.send":
            await self.gate.wait()
        self.messages.append(message)

    @property
    def end(self) -> int | None:
        """The code with which the feed has closed the connection."""
        return next((message["code"] for message in self.messages if message["type"] == "websocket.close"), None)

    def usages(self) -> list[dict[str, float]]:
        """The usages of the CPU by worker, in each message."""
        texts = [json.loads(message["text"]) for message in self.messages if message["type"] == "websocket.send"]
        return [{name: worker["cpu_usage"] for name, worker in text.items()} for text in texts]


class Given:
    """A feed that changes completely at each `change`. It holds `STATES` whole states."""

    def __init__(self) -> None:
        self._clock, self.context = clock, _ = FakeClock(), make_context()
        self.fleet = Fleet(HeartbeatReceiver.Config(), clock)
        self.change(0)
        self.size = len(self.fleet.some_json(list(self.fleet.workers)))
        self.feed = WorkerFeed(
            self.fleet,
            all_telemetry(self.fleet, clock),
            clock,
            push_interval=1,
            max_clients=1000,
            drop=self.context.drop,
            count_clients=lambda _: None,
            most_held=int((STATES + 0.5) * self.size),
        )
        self.readers: list[Reader] = []

    def change(self, cpu: float) -> None:
        self._clock.advance(1)  # a state serves all clients for 0.1 s
        for number in range(WORKERS):
            self.fleet.beat(Heartbeat(worker_id=f"w{number}", cpu_usage=cpu).SerializeToString(), SENDER)

    def sequences(self, count: int) -> list[int]:
        """The numbers before each of so many changes."""
        found = []
        for cpu in range(count):
            found.append(self.fleet.changes.sequence)
            self.change(cpu)
        self.feed.tick()
        return found

    async def connect(self, count: int = 1) -> list[Reader]:
        """Further clients, which take nothing."""
        found = [Reader(self.feed) for _ in range(count)]
        self.readers += found
        await until(lambda: all(one.messages for one in found))  # accepted
        await until(lambda: self.feed.held.size > 0)
        return found

    @property
    def dropped(self) -> dict[str, int]:
        return dict(self.context.drop.counts)  # type: ignore[attr-defined]


@asynccontextmanager
async def feeding() -> AsyncIterator[Given]:
    given = Given()
    yield given
    await cancel(*(reader.task for reader in given.readers))
    assert given.feed.held.size == 0


async def test_clients_with_the_same_message_hold_it_once() -> None:
    async with feeding() as given:
        await given.connect(100)
        assert given.size <= given.feed.held.size < 1.1 * given.size
        assert given.dropped == {}


async def test_beyond_the_bound_the_clients_with_the_oldest_messages_are_disconnected_and_the_others_go_on() -> None:
    async with feeding() as given:
        for cpu in range(10):
            given.change(cpu)
            await given.connect(2)
            await until(lambda: given.feed.held.size <= (STATES + 0.5) * given.size)
        gone, kept = given.readers[: -2 * STATES], given.readers[-2 * STATES :]
        await until(lambda: all(one.end == 1013 for one in gone))
        assert given.dropped == {"slow_client": 20 - 2 * STATES}
        given.change(50)
        given.feed.tick()
        for one in kept:
            one.gate.set()
        await until(lambda: all(len(one.usages()) == 2 for one in kept))
        assert [one.usages()[-1] for one in kept] == [{f"w{number}": 50 for number in range(WORKERS)}] * 2 * STATES
        assert given.dropped == {"slow_client": 20 - 2 * STATES}


async def test_a_single_message_beyond_the_bound_is_sent() -> None:
    async with feeding() as given:
        given.feed.held = type(given.feed.held)(1)
        (reader,) = await given.connect()
        reader.gate.set()
        await until(lambda: len(reader.usages()) == 1)
        assert given.dropped == {}


async def test_changes_are_made_once_for_all_clients_that_have_seen_the_same() -> None:
    async with feeding() as given:
        sequences = given.sequences(20)
        made = [given.feed.since_for_many(sequence) for _ in range(50) for sequence in sequences]
        assert len({id(workers) for workers in made}) == 20
        assert made[-1] == given.feed.since(sequences[-1])


async def test_beyond_a_bound_of_bytes_the_changes_used_longest_ago_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with feeding() as given:
        monkeypatch.setattr(feed_module, "_MOST_MADE", int(3.5 * given.size))
        often, *others = given.sequences(5)
        made = given.feed.since_for_many(often)
        seldom = given.feed.since_for_many(others[0])
        for sequence in others:
            given.feed.since_for_many(sequence)
            assert given.feed.since_for_many(often) is made
        assert given.feed.since_for_many(others[0]) is not seldom
        assert given.feed.since_for_many(others[0]) == seldom
