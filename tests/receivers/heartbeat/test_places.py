"""The table of workers under clients that bring many ids: live workers stay, and new ones find a place."""

from typing import Any

import pytest

from otel_zernel.testing import FakeClock
from otel_zernel_libraries.cluster.messages import WorkerInfo
from otel_zernel_libraries.serving.http2 import Peer
from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_receivers.heartbeat import HeartbeatReceiver
from otel_zernel_receivers.heartbeat.fleet.fleet import Fleet
from otel_zernel_receivers.heartbeat.fleet.sender import WorkerSender
from tests.receivers.heartbeat.workers import beat, fleet_of

PLACES = 1000


def places(clock: FakeClock, **options: Any) -> Fleet:
    return fleet_of(clock, **{"max_workers": PLACES, **options})


def client(address: str = "10.0.0.1", token: str = "", *, is_trusted: bool = False) -> WorkerSender:
    """A client with an open connection of its own."""
    return WorkerSender(Peer(address), token, is_trusted)


def flood(fleet: Fleet, hostile: WorkerSender, count: int = 2 * PLACES) -> None:
    for number in range(count):
        beat(fleet, f"hostile-{number}", hostile)


@pytest.mark.parametrize("address", ["10.0.0.1", "10.66.6.6"])
def test_a_client_that_fills_the_table_keeps_no_live_worker_and_no_new_one_out(address: str) -> None:
    fleet = places(FakeClock())
    workers = {f"w{number}": client() for number in range(100)}
    assert all(beat(fleet, *worker) for worker in workers.items())
    flood(fleet, hostile := client(address))
    assert len(fleet.workers) == PLACES
    late = {f"late-{number}": client() for number in range(50)}
    assert all(beat(fleet, *worker) for worker in late.items())
    flood(fleet, hostile, 10)
    assert {*workers, *late} <= {*fleet.workers}
    assert len(fleet.workers) == PLACES


def test_the_client_with_too_many_workers_loses_its_longest_silent_one() -> None:
    fleet = places(clock := FakeClock(), max_workers=3)
    hostile = client("10.66.6.6")
    for worker_id in ("a", "b", "c", "a"):
        beat(fleet, worker_id, hostile)
        clock.advance(1)
    assert beat(fleet, "w", client())
    assert {*fleet.workers} == {"a", "c", "w"}
    assert fleet.dropped == {"too_many_workers": 1}


def test_a_host_that_opens_many_connections_gives_its_places_to_other_hosts() -> None:
    fleet = places(FakeClock())
    for number in range(2 * PLACES):
        beat(fleet, f"hostile-{number}", client("10.66.6.6"))
    assert beat(fleet, "w", client())
    assert not beat(fleet, "hostile-x", client("10.66.6.6"))


def test_a_full_table_of_workers_with_one_place_each_pushes_out_nobody() -> None:
    fleet = places(FakeClock())
    for number in range(PLACES):
        beat(fleet, f"w{number}", client(f"10.0.{number // 256}.{number % 256}"))
    assert not beat(fleet, "more", client("10.66.6.6"))
    assert "w0" in fleet.workers


def test_clients_with_credentials_may_bring_any_number_of_workers() -> None:
    fleet = places(FakeClock())
    relay = client(token="relay", is_trusted=True)
    for number in range(PLACES):
        assert beat(fleet, f"w{number}", relay)
    assert not beat(fleet, "more", client("10.0.0.2", "other", is_trusted=True))


def test_a_worker_belongs_to_its_connection_until_that_ends_or_is_silent() -> None:
    fleet = places(clock := FakeClock())
    owner, stranger = client(), client()
    beat(fleet, "w", owner)
    clock.advance(29)
    with pytest.raises(RequestFailure, match="another client sends for the worker w; give each worker its own"):
        beat(fleet, "w", stranger)
    with pytest.raises(RequestFailure):
        fleet.register(WorkerInfo(worker_id="w").SerializeToString(), stranger)
    assert fleet.dropped == {"taken": 2}
    clock.advance(1.1)
    assert beat(fleet, "w", stranger)
    with pytest.raises(RequestFailure):
        beat(fleet, "w", owner)
    stranger.peer.closed = True
    assert beat(fleet, "w", owner)


def test_a_token_proves_the_worker_on_any_connection_and_the_connection_alone_does_not() -> None:
    fleet = places(FakeClock())
    beat(fleet, "w", first := client(token="t"))
    assert beat(fleet, "w", client("10.0.0.2", token="t"))
    for stranger in (client(token="u"), client(), WorkerSender(first.peer, "u"), WorkerSender(first.peer)):
        with pytest.raises(RequestFailure):
            beat(fleet, "w", stranger)


def test_refused_messages_do_not_keep_a_silent_worker_alive() -> None:
    fleet = places(clock := FakeClock())
    beat(fleet, "w", client(), cpu_usage=10)
    for _ in range(3):
        clock.advance(10)
        with pytest.raises(RequestFailure):
            beat(fleet, "w", client(), cpu_usage=99)
    clock.advance(0.1)
    fleet.sweep()
    assert (fleet.workers["w"].active, fleet.workers["w"].cpu) == (False, 10)


def test_every_worker_may_come_again_after_a_reload() -> None:
    fleet = places(FakeClock())
    beat(fleet, "w", owner := client())
    owner.peer.closed = True  # as at the end of a server
    fleet.resume(HeartbeatReceiver.Config.model_validate({}))
    assert beat(fleet, "w", client())


def test_places_of_forgotten_workers_are_free_again() -> None:
    fleet = places(clock := FakeClock(), forget_after="1m")
    flood(fleet, client("10.66.6.6"))
    clock.advance(61)
    while fleet.sweep():
        pass
    assert fleet.workers == {}
    for number in range(PLACES):
        assert beat(fleet, f"w{number}", client(f"10.0.{number // 256}.{number % 256}"))
    assert not beat(fleet, "more", client("10.1.0.0"))
