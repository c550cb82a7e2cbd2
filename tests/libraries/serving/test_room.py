"""The room of requests: what has ended is free at once."""

import gc
import time
import weakref

from otel_zernel_libraries.serving.requests.failures import RequestFailure
from otel_zernel_libraries.serving.requests.room import Room


class Request:
    """A request that has room, and that the room may refuse."""

    def __init__(self, room: Room) -> None:
        self.hold = room.take(self.refuse)
        self.refusal: RequestFailure | None = None

    def refuse(self, failure: RequestFailure) -> None:
        self.refusal = failure


def test_an_ended_request_leaves_no_cycle_for_the_garbage_collector() -> None:
    """Thousands of requests a second would make it run often, and each run delays those of the moment."""
    room = Room(1 << 20, time.monotonic)
    request = Request(room)
    request.hold.add(100)
    request.hold.give_back()
    seen = weakref.ref(request)
    gc.disable()
    try:
        del request
        assert seen() is None
    finally:
        gc.enable()
    assert room.used == 0


def test_a_slow_request_is_refused_for_one_that_needs_its_room() -> None:
    now = [0.0]
    room = Room(100, lambda: now[0])
    slow, other = Request(room), Request(room)
    slow.hold.add(80)
    now[0] = 5.0
    other.hold.add(90)
    assert slow.refusal
    assert other.refusal is None
    assert room.used == 90
