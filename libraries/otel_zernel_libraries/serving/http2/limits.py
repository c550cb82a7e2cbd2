"""The limits of an HTTP/2 server, so that no client can exhaust the collector's memory or time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from otel_zernel_libraries.serving.http2.wire import ConnectionBroken, ErrorCode

HEADER_BLOCK: Final = 32 << 10
"""Bytes of one header block on the wire, and of the decoded headers. gRPC's own server allows 16 KiB."""
FRAME: Final = 1 << 20
"""The largest frame with data. Large frames save work."""
CONNECTION_WINDOW: Final = 16 << 20
"""Bytes that a client may send on all streams before the server has read them."""
NUISANCES: Final = 2000
"""Control frames and resets that a client may send in excess of its requests, before it is disconnected."""
FORGIVEN_A_SECOND: Final = 200
FORGIVEN_A_REQUEST: Final = 8
"""A usual request, or a message of a stream, comes with a window update and a ping."""
UNREAD: Final = 256 << 10
"""Bytes of streamed answers that wait for a client to read them. Beyond, its calls fail."""
CALL: Final = 2048
"""Bytes of memory that a running call takes besides its message."""


_STRIKES: Final = 2
"""Early pings that are forgiven, as in gRPC's own servers."""
_WITHOUT_CALLS: Final = 7200.0
"""Seconds between two pings while no call runs, unless they are allowed (gRPC A8)."""


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """Bounds for every connection. Times are in s; 0 means for ever."""

    message: int = 4 << 20
    """Bytes of one message, as sent and again as decompressed."""
    streams: int = 1000
    """Running requests of one connection."""
    connections: int = 4096
    """Open connections. Beyond, the one that is idle longest is closed; if none is idle, the new one is closed."""
    files: float = 0.25
    """The share of the process's open files (`RLIMIT_NOFILE`) that connections may take."""
    head_time: float = 10.0
    """For the TLS handshake, the preface, and each header block."""
    body_time: float = 30.0
    """From the headers of a request to the end of its message."""
    write_time: float = 30.0
    """In which a client reads what fills its connection's buffers."""
    ping_after: float = 7200.0
    """Silence after which the server pings."""
    ping_time: float = 20.0
    """For the answer to a ping."""
    idle_time: float = 0.0
    """For a connection without requests."""
    age: float = 0.0
    """For any connection. Clients then connect again, perhaps to another server."""
    age_grace: float = 0.0
    """For the requests that run at this age."""
    least_ping_interval: float = 300.0
    """Between two pings of a client. A third ping that comes too early disconnects it."""
    pings_without_calls: bool = False
    """Whether a client may ping while no request runs. Else once in 2 hours."""


class Nuisances:
    """Frames of one connection that cost the server more than the client: a few are forgiven, a flood ends it.

    Time and proper requests reduce their count.
    """

    def __init__(self) -> None:
        self._count = 0.0

    def add(self) -> None:
        """Counts one. Raises `ConnectionBroken` if there are too many."""
        self._count += 1
        if self._count > NUISANCES:
            raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too many control frames")

    def forgive(self, count: float) -> None:
        """Forgets up to `count` of them."""
        self._count = max(0.0, self._count - count)


class Pings:
    """The pings of one connection. Dead clients are found, and clients that ping too often are disconnected."""

    def __init__(self, limits: Http2Limits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._heard_at = now()
        self._asked_at: float | None = None
        self._last: float | None = None
        """When the client pinged."""
        self._strikes = 0

    def heard(self) -> None:
        """The client has sent something, so it lives."""
        self._heard_at, self._asked_at = self._now(), None

    def answered(self) -> None:
        """A call was answered: clients may measure the delay by a ping."""
        self._strikes = 0
        self._last = None

    def check(self, *, has_calls: bool) -> None:
        """The client pings. Raises `ConnectionBroken` if that is too often."""
        now, least = self._now(), self._limits.least_ping_interval
        if not has_calls and not self._limits.pings_without_calls:
            least = max(least, _WITHOUT_CALLS)
        if self._last is not None and now - self._last < least:
            self._strikes += 1
            if self._strikes > _STRIKES:
                raise ConnectionBroken(ErrorCode.ENHANCE_YOUR_CALM, "too_many_pings")
        self._last = now

    def is_due(self, now: float) -> bool:
        """Whether to ping the client, which then has to answer."""
        if self._asked_at is None and now - self._heard_at > self._limits.ping_after:
            self._asked_at = now
            return True
        return False

    def is_dead(self, now: float) -> bool:
        """Whether the client did not answer in time."""
        return self._asked_at is not None and now - self._asked_at > self._limits.ping_time
