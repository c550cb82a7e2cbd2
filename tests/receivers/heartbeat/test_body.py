"""The JSON of all workers stays whole while the fleet changes between its pieces."""

import json

from otel_zernel.cluster.messages import Heartbeat
from otel_zernel.testing import FakeClock
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.http.body import AllWorkers


def fleet_of(clock: FakeClock, count: int) -> Fleet:
    fleet = Fleet(HeartbeatReceiver.Config(), clock)
    for number in range(count):
        beat(fleet, f"w{number}", 0)
    return fleet


def beat(fleet: Fleet, worker_id: str, cpu: float) -> None:
    fleet.beat(Heartbeat(worker_id=worker_id, cpu_usage=cpu).SerializeToString())


def test_any_number_of_workers_is_one_object() -> None:
    for count in (0, 1, 499, 500, 501, 1000, 1234):
        body, _ = AllWorkers(fleet_of(clock := FakeClock(), count), clock).numbered()
        assert set(json.loads(body)) == {f"w{number}" for number in range(count)}


def test_workers_that_come_and_go_between_two_pieces_damage_nothing() -> None:
    fleet = fleet_of(clock := FakeClock(), 1200)
    everything = AllWorkers(fleet, clock)
    everything.numbered()
    pieces, parts = everything.pieces(), []
    for number, piece in enumerate(pieces):
        parts.append(piece)
        beat(fleet, f"new{number}", 1)
        del fleet.workers[f"w{number}"]
        fleet.membership += 1
    assert set(json.loads(b"".join(parts))) == {f"w{number}" for number in range(1200)}
    again = json.loads(everything.numbered()[0])
    assert set(again) == set(fleet.workers)


def test_a_change_is_seen_at_once_after_a_rest_and_within_a_moment_under_load() -> None:
    fleet = fleet_of(clock := FakeClock(), 3)
    everything = AllWorkers(fleet, clock)
    _, before = everything.numbered()
    beat(fleet, "w1", 50)
    stale, number = everything.numbered()
    assert (json.loads(stale)["w1"]["cpu_usage"], number) == (0, before)
    clock.advance(0.06)
    fresh, number = everything.numbered()
    assert (json.loads(fresh)["w1"]["cpu_usage"], number) == (50, fleet.changes.sequence)
