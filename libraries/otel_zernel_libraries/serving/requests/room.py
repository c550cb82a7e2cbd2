"""The memory for requests on their way, with a limit over all connections of a server."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from otel_zernel_libraries.serving.requests.failures import RequestFailure, overloaded

SLOW_AFTER: Final = 1.0
"""Seconds after which a request that still arrives may be refused to make room for others."""


class Room:
    """The bytes of all requests that are being received and handed over, with a limit.

    If there is no room, the requests that arrive slowly are refused, the oldest first: stalled senders cannot keep out
    the others.
    """

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        """`limit` is in bytes, and `now` a monotonic clock in s."""
        self.limit = limit
        self.used = 0
        self._now = now
        self._arriving: OrderedDict[Hold, float] = OrderedDict()
        """The requests that may be refused, by their start, the oldest first."""

    def take(self, evict: Callable[[RequestFailure], None]) -> "Hold":
        """The share of a new request, which is empty. `evict` refuses the request if it is slow."""
        hold = Hold(self, evict)
        self._arriving[hold] = self._now()
        return hold

    def arrived(self, hold: "Hold") -> None:
        """The request is complete, and no longer slow."""
        self._arriving.pop(hold, None)

    def need(self, size: int) -> None:
        """Raises a `RequestFailure` if there is no room for `size` bytes more."""
        while self.used + size > self.limit and self._arriving:
            oldest, start = next(iter(self._arriving.items()))
            if self._now() - start < SLOW_AFTER:
                break
            evict = oldest.evict
            oldest.give_back()
            evict(overloaded("the request arrives slowly, and the receiver needs its room; send again later"))
        if self.used + size > self.limit:
            limit = self.limit >> 20
            raise overloaded(f"the receiver holds max_in_flight_mib ({limit} MiB) of requests; send again later")


class Hold:
    """The bytes of one request."""

    __slots__ = ("_room", "evict", "size")

    def __init__(self, room: Room, evict: Callable[[RequestFailure], None]) -> None:
        self._room = room
        self.evict = evict
        self.size = 0

    def add(self, size: int) -> None:
        """Takes room for `size` bytes more. Raises a `RequestFailure` if there is none."""
        self._room.need(size)
        self._room.used += size
        self.size += size

    def arrived(self) -> None:
        """The request is complete: it keeps its room until `give_back`."""
        self._room.arrived(self)

    def shrink(self, size: int) -> None:
        """Frees room for `size` bytes."""
        self._room.used -= size
        self.size -= size

    def give_back(self) -> None:
        """Frees everything, and forgets the request: no cycle is left for Python to collect. Safe to call twice."""
        self.arrived()
        self.shrink(self.size)
        self.evict = _nobody


def _nobody(_: RequestFailure) -> None:
    """The request has ended."""
