"""Frames that cost the server more than the client: a few are forgiven, a flood ends the connection."""

from otel_zernel_libraries.serving.http2.limits import NUISANCES
from otel_zernel_libraries.serving.http2.wire import ConnectionBroken, ErrorCode


class Nuisances:
    """The count of such frames on one connection. Time and proper requests reduce it."""

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
