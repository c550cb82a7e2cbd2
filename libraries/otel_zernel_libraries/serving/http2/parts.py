"""The parts of a server of HTTP/2 that its connections share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from otel_zernel_libraries.serving.http2.call import Route
from otel_zernel_libraries.serving.http2.limits import Http2Limits
from otel_zernel_libraries.serving.http2.peer import Peer
from otel_zernel_libraries.serving.requests.room import Room


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What every connection of a server uses."""

    route: Route
    """Finds the method for the headers of a request."""
    room: Room
    """The memory for the messages of all connections."""
    limits: Http2Limits
    now: Callable[[], float]
    """The monotonic clock, in s."""


class FrameOutlet(Protocol):
    """The connection below the streams."""

    peer: Peer

    def write(self, data: bytes) -> None:
        """Sends frames."""

    def unread(self) -> int:
        """The number of bytes that are not sent yet."""

    def later(self, function: Callable[[], None]) -> None:
        """Calls the function when all that was read is handled."""

    def become_idle(self) -> None:
        """Is called when the last call has ended."""
