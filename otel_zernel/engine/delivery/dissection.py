"""Taking a rejected request apart, so that one bad batch does not cost the batches that were joined with it."""

from collections import deque
from collections.abc import Sequence

from otel_zernel.engine.delivery.sending import Failure
from otel_zernel.engine.queues import Request

MOST_REJECTIONS = 64
"""Rejected requests after which the rest is given up. It bounds the extra work for the server."""
HOPELESS = 16
"""Rejections without one success after which the rest is given up: the server rejects everything. One bad batch among
2^15 causes no more, because each rejection halves a request."""


class Dissection:
    """Which parts of a rejected request to send together next: halves, then quarters, down to single parts."""

    def __init__(self, parts: Sequence[Request]) -> None:
        self._groups: deque[Sequence[Request]] = deque()
        self._rejections = 0
        self._accepted = False
        self._divide(parts)

    def next_group(self) -> Sequence[Request]:
        """The parts to send next, in one request. Empty if none are left, or if it is hopeless."""
        while self._groups:
            if self._rejections >= MOST_REJECTIONS or (self._rejections >= HOPELESS and not self._accepted):
                return ()
            if group := self._groups.popleft():
                return group
        return ()

    def divides(self, group: Sequence[Request], outcome: Failure | None) -> bool:
        """Takes the outcome of a group. Returns whether its parts are sent again; if not, they are settled."""
        if outcome is None:
            self._accepted = True
        if outcome is None or not outcome.rejected:
            return False
        self._rejections += 1
        if len(group) > 1:
            self._divide(group)
        return len(group) > 1

    def rest(self) -> list[Request]:
        """The parts that are given up without another attempt."""
        return [part for group in self._groups for part in group]

    def _divide(self, group: Sequence[Request]) -> None:
        middle = len(group) // 2
        self._groups.extendleft((group[middle:], group[:middle]))
