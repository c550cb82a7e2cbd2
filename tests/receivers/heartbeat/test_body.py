"""The JSON of all workers stays whole while the fleet changes between its pieces."""

import asyncio
import json

from otel_zernel.testing import FakeClock
from otel_zernel_libraries.cluster.messages import Heartbeat, RunningTask, WorkerInfo
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.http.body import all_listed, all_telemetry
from tests.background import in_background
from tests.receivers.heartbeat.workers import SENDER, Stream, beat, fleet_of


def fleet_with(clock: FakeClock, count: int) -> Fleet:
    """A fleet of this many workers."""
    fleet = fleet_of(clock)
    for number in range(count):
        beat(fleet, f"w{number}")
    return fleet


async def test_any_number_of_workers_is_one_object() -> None:
    for count in (0, 1, 999, 1000, 1001, 2000, 2345):
        body, _ = await all_telemetry(fleet_with(clock := FakeClock(), count), clock).numbered()
        assert set(json.loads(body)) == {f"w{number}" for number in range(count)}


async def test_workers_that_come_and_go_between_two_pieces_damage_nothing() -> None:
    fleet = fleet_with(clock := FakeClock(), 1200)
    everything = all_telemetry(fleet, clock)
    await everything.numbered()
    pieces, parts = everything.pieces(), []
    for number, piece in enumerate(pieces):
        parts.append(piece)
        beat(fleet, f"new{number}", cpu_usage=1)
        del fleet.workers[f"w{number}"]
    assert set(json.loads(b"".join(parts))) == {f"w{number}" for number in range(1200)}
    clock.advance(0.11)
    again = json.loads((await everything.numbered())[0])
    assert set(again) == set(fleet.workers)


async def test_a_change_is_seen_at_once_after_a_rest_and_within_a_moment_under_load() -> None:
    fleet = fleet_with(clock := FakeClock(), 3)
    everything = all_telemetry(fleet, clock)
    _, before = await everything.numbered()
    beat(fleet, "w1", cpu_usage=50)
    stale, number = await everything.numbered()
    assert (json.loads(stale)["w1"]["cpu_usage"], number) == (0, before)
    clock.advance(0.11)
    fresh, number = await everything.numbered()
    assert (json.loads(fresh)["w1"]["cpu_usage"], number) == (50, fleet.changes.sequence)


async def test_readers_of_the_same_moment_share_one_body() -> None:
    everything = all_telemetry(fleet_with(clock := FakeClock(), 1200), clock)
    found = await asyncio.gather(*(everything.body() for _ in range(20)))
    assert len({id(body) for body in found}) == 1


class SteppedClock(FakeClock):
    """Sleeps until the test lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while self.monotonic() < until:
            await self._passed.wait()

    async def pass_time(self, seconds: float) -> None:
        self.advance(seconds)
        passed, self._passed = self._passed, asyncio.Event()
        passed.set()
        for _ in range(20):
            await asyncio.sleep(0)


async def test_while_somebody_asks_the_body_is_renewed_before_the_next_request() -> None:
    fleet = fleet_with(clock := SteppedClock(), 3)
    everything = all_telemetry(fleet, clock)
    async with in_background(everything.run()):
        first = await everything.body()
        for cpu in range(1, 5):
            await asyncio.sleep(0)
            beat(fleet, "w1", cpu_usage=cpu)
            await clock.pass_time(0.06)
            body = await everything.body()
            assert (body.sequence, body.made) == (fleet.changes.sequence, clock.monotonic())
        assert body is not first


async def test_a_body_that_nobody_asks_for_any_more_is_forgotten() -> None:
    fleet = fleet_with(clock := SteppedClock(), 3)
    everything = all_telemetry(fleet, clock)
    async with in_background(everything.run()):
        first = await everything.body()
        assert await everything.body() is first
        for _ in range(3):
            await clock.pass_time(0.6)
        assert await everything.body() is not first


async def test_a_large_body_has_several_parts() -> None:
    fleet, tasks = fleet_with(clock := FakeClock(), 0), [RunningTask(task_id="t" * 250) for _ in range(50)]
    for number in range(400):
        fleet.beat(Heartbeat(worker_id=f"w{number}", running_tasks=tasks).SerializeToString(), SENDER)
    fleet_of_many = [fleet.workers.setdefault(f"more{number}", fleet.workers["w0"]) for number in range(2000)]
    body = await all_telemetry(fleet, clock).body()
    assert len(body.parts) > 1
    assert body.size == len(b"".join(body.parts)) > len(fleet_of_many) * 250
    assert b"".join(body.parts).endswith(b"}}")


async def test_the_list_is_that_of_the_single_workers_however_they_are_named() -> None:
    fleet = fleet_with(clock := FakeClock(), 3)
    for worker_id in ('quote"back\\slash', "Zürich-✓", "line\nbreak"):
        info = WorkerInfo(worker_id=worker_id, worker_ip='10.0.0.7"', total_cpu=8, total_gpu=0.5)
        fleet.register(info.SerializeToString(), SENDER)
    listed, _ = await all_listed(fleet, clock).numbered()
    assert json.loads(listed) == [worker.described() for worker in fleet.workers.values()]


async def test_the_list_sees_the_end_of_a_stream_after_a_moment() -> None:
    fleet, stream = fleet_with(clock := FakeClock(), 1), Stream()
    beat(fleet, "w0", stream=stream)
    everything = all_listed(fleet, clock)
    assert json.loads((await everything.numbered())[0])[0]["state"] == "active"
    stream.closed = True
    clock.advance(0.11)
    assert json.loads((await everything.numbered())[0])[0]["state"] == "unknown"


async def test_a_change_while_the_body_is_made_is_not_behind_its_number() -> None:
    fleet = fleet_with(clock := FakeClock(), 1200)
    everything = all_telemetry(fleet, clock)
    making = asyncio.create_task(everything.numbered())
    for _ in range(3):  # the first bracket, and the first piece
        await asyncio.sleep(0)
    before = fleet.changes.sequence
    beat(fleet, "w0", cpu_usage=50)
    del fleet.workers["w1199"]
    fleet.changes.note_removal("w1199")
    body, number = await making
    assert number <= before
    assert json.loads(body)["w0"]["cpu_usage"] == 0
    assert set(fleet.changes.since(number) or []) == {"w0", "w1199"}
