"""Pings in both directions: dead clients are found, and clients that ping too often are disconnected."""

from collections.abc import Callable
from typing import Final

from otel_zernel_libraries.serving.http2.limits import Http2Limits
from otel_zernel_libraries.serving.http2.wire import ConnectionBroken, ErrorCode

_STRIKES: Final = 2
"""Early pings that are forgiven, as in gRPC's own servers."""
_WITHOUT_CALLS: Final = 7200.0
"""Seconds between two pings while no call runs, unless they are allowed (gRPC A8)."""


class Pings:
    """The pings of one connection."""

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
        self._strikes, self._last = 0, None

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
