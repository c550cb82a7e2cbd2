"""The stream: a state, then deltas; resume, slow readers, and one encoding for all."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from otel_zernel.clock import Clock, SystemClock
from otel_zernel.errors import CannotStart
from otel_zernel.testing import FakeClock, make_context, until
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_exporters.live.live_state import LiveState
from otel_zernel_exporters.live.streaming import LiveStream
from otel_zernel_libraries.serving.api.live import apply_delta
from tests.api_server import FakeApiServer, FakeConnection
from tests.exporters.live.live_runs import PROCESS, SECOND, START, durations, phase_times, points, recorded_batches

URL = "/api/live/stream"


class LiveServer:
    """A running exporter and the API that serves its routes."""

    def __init__(self, clock: Clock | None = None, **config: Any) -> None:
        self.api = FakeApiServer()
        clock = clock or SystemClock()
        context = make_context("exporters", "live", clock=clock, extensions={"api": self.api})
        self.exporter = LiveExporter(LiveExporter.Config(**{"push_interval": "100ms", **config}), context)

    async def state(self) -> Any:
        return (await self.api.get("/api/live")).json


@pytest.fixture
async def server() -> AsyncIterator[LiveServer]:
    server = LiveServer()
    async with server.exporter:
        yield server


class EventReader:
    """The events of a stream, one after the other."""

    def __init__(self, connection: FakeConnection) -> None:
        self._connection = connection
        self._held = b""

    async def event(self) -> dict[str, str]:
        """The fields of the next event; a comment has the field with an empty name."""
        while b"\n\n" not in self._held:
            part = await self._connection.part()
            if not part:
                return {}
            self._held += part
        event, _, self._held = self._held.partition(b"\n\n")
        return dict(_field(line) for line in event.decode().split("\n"))


def _field(line: str) -> tuple[str, str]:
    name, _, value = line.partition(": ")
    return ("", line) if line.startswith(":") else (name, value)


@asynccontextmanager
async def reading(server: LiveServer, **headers: str) -> AsyncIterator[EventReader]:
    async with server.api.stream(URL, {name.replace("_", "-"): value for name, value in headers.items()}) as connection:
        status, _ = await connection.start()
        assert status == 200
        reader = EventReader(connection)
        assert await reader.event() == {"retry": "1000"}
        yield reader


async def test_the_first_event_is_the_state_and_deltas_follow(server: LiveServer) -> None:
    await server.exporter.export(phase_times(gpu_compute=1.0))
    async with reading(server) as reader:
        first = await reader.event()
        state = json.loads(first["data"])
        assert (first["event"], first["id"]) == ("state", str(state["seq"]))
        await server.exporter.export(points("zernel.step.rate", [({}, 4.0)]))
        while not any(rank.get("step_rate") for rank in state["ranks"].values()):
            event = await reader.event()
            assert event["event"] == "delta"
            apply_delta(state, json.loads(event["data"]))
            assert event["id"] == str(state["seq"])


async def test_the_headers_keep_proxies_from_buffering(server: LiveServer) -> None:
    async with server.api.stream(URL) as connection:
        status, headers = await connection.start()
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["x-accel-buffering"] == "no"
    assert headers["cache-control"] == "no-store"


async def test_the_streamed_state_is_the_snapshot(server: LiveServer) -> None:
    for batch in recorded_batches("gloo_DDP_a_late_rank", is_job=True):
        await server.exporter.export(batch)
    answer = await server.state()
    async with reading(server) as reader:
        streamed = json.loads((await reader.event())["data"])
    snapshot = json.loads(json.dumps(server.exporter.snapshot()))
    for state in (answer, streamed):
        assert list(state) == list(snapshot)
        for name in ("gpus", "ranks", "jobs", "timeline"):
            assert state[name] == snapshot[name]


async def test_a_reader_that_comes_back_gets_the_deltas_it_missed(server: LiveServer) -> None:
    await server.exporter.export(phase_times(gpu_compute=1.0))
    async with reading(server) as reader:
        state = json.loads((await reader.event())["data"])
    await server.exporter.export(points("zernel.step.rate", [({}, 4.0)]))
    async with reading(server) as other:  # another reader gets the change
        while not json.loads((await other.event())["data"]).get("ranks", {}):
            pass
    async with reading(server, last_event_id=str(state["seq"])) as reader:
        event = await reader.event()
        assert event["event"] == "delta"
        apply_delta(state, json.loads(event["data"]))
    assert [rank["step_rate"] for rank in state["ranks"].values()] == [4.0]


@pytest.mark.parametrize("number", ["1", "99999999999999", "x", "-5", "9" * 30])
async def test_a_reader_with_an_unknown_number_gets_the_state(server: LiveServer, number: str) -> None:
    async with reading(server, last_event_id=number) as reader:
        assert (await reader.event())["event"] == "state"


async def test_too_many_readers_are_refused_with_a_sentence() -> None:
    server = LiveServer(max_clients=1)
    async with server.exporter:
        async with reading(server) as reader:
            await reader.event()
            answer = await server.api.get(URL)
            assert (answer.status, answer.headers["retry-after"]) == (503, "10")
            assert "max_clients" in answer.json["error"]
        async with reading(server) as reader:
            assert (await reader.event())["event"] == "state"


async def test_the_stop_of_the_exporter_ends_the_streams() -> None:
    server = LiveServer()
    await server.exporter.__aenter__()
    async with reading(server) as reader:
        await reader.event()
        await server.exporter.__aexit__(None, None, None)
        while await reader.event():
            pass
    assert (await server.api.get("/api/live")).status == 503


async def test_without_an_api_it_says_what_to_enable() -> None:
    exporter = LiveExporter(LiveExporter.Config(), make_context("exporters", "live"))
    with pytest.raises(CannotStart, match="extension api is not enabled"):
        await exporter.__aenter__()
    await exporter.__aexit__(None, None, None)


class BlockedConnection(FakeConnection):
    """A client that reads nothing from a moment on."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = asyncio.Event()
        self.reads.set()
        self.is_sent_to = False

    async def send(self, message: dict[str, Any]) -> None:
        self.is_sent_to = True
        await self.reads.wait()
        self.is_sent_to = False
        await super().send(message)


class BareStream:
    """A stream whose pushes the test makes."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = FakeClock(START)
        used = clock or self.clock
        self.collector: dict[str, Any] = {"number": 0}
        self.slow = 0
        self.failures: list[Exception] = []
        self.state = LiveState(used, history=5, expiration=300)
        self.stream = LiveStream(
            self.state,
            lambda: dict(self.collector),
            used,
            push_interval=0.02 if clock else 1,
            max_clients=10,
            slow=self._count_slow,
            failed=self.failures.append,
        )

    def _count_slow(self) -> None:
        self.slow += 1

    async def change(self, size: int = 0) -> None:
        """Changes the state, and pushes."""
        self.collector = {"number": self.collector["number"] + 1, "text": f"{self.collector['number']} " * size}
        self.clock.advance(1)
        await self.stream.push()

    @asynccontextmanager
    async def connected(self, connection: FakeConnection) -> AsyncIterator[None]:
        scope: dict[str, Any] = {"headers": []}
        task = asyncio.create_task(self.stream.answer_stream(scope, connection.receive, connection.send))
        await until(lambda: connection.from_server.qsize() >= 5)
        yield
        connection.from_client.put_nowait({"type": "http.disconnect"})
        await task


def bodies(connection: FakeConnection) -> Iterator[bytes]:
    while not connection.from_server.empty():
        yield connection.from_server.get_nowait().get("body", b"")


async def test_a_reader_that_falls_behind_is_dropped_and_counted() -> None:
    bare, connection = BareStream(), BlockedConnection()
    async with bare.connected(connection):
        connection.reads.clear()
        for _ in range(40):
            await bare.change(1 << 19)
        assert bare.slow == 0
        connection.reads.set()
        await until(lambda: bare.slow)
    assert bare.slow == 1
    assert not bare.stream.readers


async def test_a_slow_reader_does_not_delay_the_others() -> None:
    bare, slow, fast = BareStream(), BlockedConnection(), FakeConnection()
    async with bare.connected(slow), bare.connected(fast):
        slow.reads.clear()
        list(bodies(fast))
        for number in range(3):
            await bare.change()
            await until(lambda: not fast.from_server.empty())
            assert f'"number"],{number + 1}]'.encode() in b"".join(bodies(fast))
        slow.reads.set()
        await until(lambda: slow.from_server.qsize() >= 8)


async def test_a_reader_that_reads_nothing_until_it_is_gone_is_counted() -> None:
    bare, connection = BareStream(), BlockedConnection()
    async with bare.connected(connection):
        connection.reads.clear()
        await bare.change()
        await until(lambda: connection.is_sent_to)
        await bare.change()
        for _ in range(31):
            bare.clock.advance(1)
    assert bare.slow == 1


class StallingConnection(BlockedConnection):
    """A client that stalls as soon as its state begins."""

    async def send(self, message: dict[str, Any]) -> None:
        await super().send(message)
        if b"event: state" in message.get("body", b""):
            self.reads.clear()


async def test_a_reader_is_kept_if_another_one_gets_a_newer_state_before_the_next_push() -> None:
    bare, connection, other = BareStream(), StallingConnection(), FakeConnection()
    reading = asyncio.create_task(bare.stream.answer_stream({"headers": []}, connection.receive, connection.send))
    await until(lambda: not connection.reads.is_set())
    bare.collector = {"number": 1}
    bare.clock.advance(0.5)
    await bare.stream.answer_state({"headers": []}, other.receive, other.send)
    connection.reads.set()
    await until(lambda: connection.from_server.qsize() >= 5)
    await bare.stream.push()
    await until(lambda: reading.done() or connection.from_server.qsize() >= 6)
    assert b'"number"],1]' in b"".join(bodies(connection))
    assert bare.slow == 0
    connection.from_client.put_nowait({"type": "http.disconnect"})
    await reading


async def test_all_readers_get_the_same_bytes() -> None:
    bare = BareStream()
    first, second = FakeConnection(), FakeConnection()
    async with bare.connected(first), bare.connected(second):
        list(bodies(first)), list(bodies(second))
        await bare.change()
        await until(lambda: first.from_server.qsize() and second.from_server.qsize())
        assert first.from_server.get_nowait()["body"] is second.from_server.get_nowait()["body"]


async def test_a_silent_stream_has_a_comment_every_15_seconds() -> None:
    bare, connection = BareStream(), FakeConnection()
    async with bare.connected(connection):
        list(bodies(connection))
        await bare.change()
        await until(lambda: not connection.from_server.empty())
        list(bodies(connection))
        for _ in range(14):
            bare.clock.advance(1)
            await bare.stream.push()
        assert connection.from_server.empty()
        bare.clock.advance(1)
        await bare.stream.push()
        await until(lambda: not connection.from_server.empty())
        assert list(bodies(connection)) == [b": alive\n\n"]


async def test_without_readers_nothing_is_rendered() -> None:
    clock = FakeClock()
    clock.advance(1)  # the last reader left longer ago than changes are kept
    server = LiveServer(clock=clock)
    async with server.exporter:
        before = server.exporter._state.published.seq
        await server.exporter.export(phase_times(gpu_compute=1.0))
        for _ in range(100):  # a push would come in each turn: a wait of this clock takes none
            await asyncio.sleep(0)
        assert server.exporter._state.published.seq == before
        async with reading(server):
            await until(lambda: server.exporter._state.published.seq > before)


async def test_the_state_of_many_jobs_is_encoded_in_pieces_and_is_that_of_the_snapshot() -> None:
    bare, jobs = BareStream(), 60
    for second in range(20):
        time_ns = START + second * SECOND
        for pid in range(jobs):
            alone = {**PROCESS, "process.pid": pid}
            spent = {"data_loading": float(second), "gpu_compute": second / 3}
            for batch in (durations(0.02, 0.5, resource=alone), phase_times(alone, time_ns=time_ns, **spent)):
                bare.state.add(batch)
        bare.clock.advance(1)
    snapshot = bare.state.snapshot(bare.collector)
    assert len(snapshot["heat"]["columns"]) == len(snapshot["shares"]) == jobs
    seq, pieces = bare.state.encoded(bare.collector)
    assert (seq, json.loads(b"".join(pieces))) == (snapshot["seq"], snapshot)
    assert max(map(len, pieces)) <= 1 << 15


async def test_without_readers_a_state_keeps_nothing_of_jobs_that_have_left() -> None:
    bare = BareStream()
    for pid in range(200):
        alone = {**PROCESS, "process.pid": pid}
        bare.state.add(phase_times(alone, gpu_compute=1.0))
        bare.state.add(durations(0.1, resource=alone))
        bare.state.add(points("zernel.job.step.duration", [({}, 1.0)], {"zernel.job.id": f"{pid}"}))
        bare.state.add(points("hw.power", [({"hw.id": f"GPU-{pid}"}, 1.0)]))
        bare.clock.advance(200)
    columns, training = bare.state._columns, bare.state._training
    kept = [len(columns.heat), len(columns.shares), len(training.processes), len(training.jobs), len(training.gpus)]
    kept += [len(table.changed) for table in (training.processes, training.jobs, training.gpus)]
    assert max(kept) <= 3


async def test_a_reader_after_a_long_time_without_one_gets_everything() -> None:
    bare = BareStream()
    bare.state.advance({})
    bare.state.add(phase_times(gpu_compute=1.0))
    bare.clock.advance(100)
    bare.state.add(points("zernel.step.rate", [({}, 4.0)]))
    [rank] = bare.state.snapshot({})["ranks"].values()
    assert (rank["times"], rank["step_rate"]) == ({"gpu_compute": 1.0}, 4.0)


async def test_the_number_of_kept_deltas_is_bounded() -> None:
    bare = BareStream()
    first = bare.state.advance({"number": -1}).seq
    for number in range(700):
        bare.state.advance({"number": number})
    published = bare.state.published
    assert len(published.events) == 600
    assert published.since(first) is None
    newest = published.since(published.seq - 2) or []
    assert [seq for seq, _ in newest] == [published.seq - 1, published.seq]
    assert published.since(published.seq) == []
