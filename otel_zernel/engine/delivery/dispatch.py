"""Requests on their way to the exporter: each is sent until it is delivered or given up, and counted then."""

from collections import deque
from collections.abc import Callable, Sequence

from otel_zernel.engine.delivery.losses import Losses
from otel_zernel.engine.delivery.sending import Failure, OnFailure, Sender, wait_on
from otel_zernel.engine.queues import Request, joined
from otel_zernel.errors import DecodeError
from otel_zernel.telemetry import ExporterMetrics

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


class Dispatch:
    """Sends requests and settles them."""

    def __init__(
        self, sender: Sender, losses: Losses, metrics: ExporterMetrics, *, expires: bool, moved: Callable[[], None]
    ) -> None:
        """`expires`: whether entries have a `max_age`. `moved` is called when a request is settled."""
        self.in_flight: set[Request] = set()
        """Requests that are leased and not settled."""
        self._sender = sender
        self._losses = losses
        self._metrics = metrics
        self._expires = expires
        self._moved = moved

    async def deliver(self, request: Request, on_failure: OnFailure = wait_on) -> bool:
        """Sends a request until it is settled. The result is False if any part of it was given up.

        Raises `Divided` if it has several entries, and the server refuses it for a reason that may be one of them.
        """
        self.in_flight.add(request)
        try:
            divisible = len(request.leases) > 1 and request.is_whole
            failure = await self._send(request, divisible=divisible, on_failure=on_failure)
            if failure and failure.may_be_in_part and len(request.leases) > 1:
                await self._take_apart(request, failure)
            else:
                self.settle(request, failure)
            return failure is None
        finally:
            self.in_flight.discard(request)
            self._moved()

    async def _send(
        self, request: Request, *, divisible: bool = False, on_failure: OnFailure = wait_on
    ) -> Failure | None:
        expires_ns = request.expires_ns if self._expires else float("inf")
        return await self._sender.send(request.batch, expires_ns, divisible=divisible, on_failure=on_failure)

    def settle(self, request: Request, failure: Failure | None) -> None:
        """The request is delivered or given up."""
        if failure is None:
            self._metrics.sent(request.batch)
        elif failure.expired:
            self._losses.expired(request.batch.counts)
        else:
            self._losses.gave_up(request.batch, failure.error, rejected=failure.rejected)
        request.acknowledge()

    def lose_damaged(self, request: Request, error: DecodeError) -> None:
        self._losses.undecodable(request.batch.counts, error)
        request.acknowledge()

    async def _take_apart(self, request: Request, failure: Failure) -> None:
        """Sends the entries of a rejected request again, in smaller and smaller requests."""
        parts = request.parts()
        self.in_flight.discard(request)
        self.in_flight.update(parts)
        try:
            dissection = Dissection(parts)
            while group := dissection.next_group():
                smaller = joined(group)
                outcome = await self._send(smaller)
                if dissection.divides(group, outcome):
                    continue
                self.settle(smaller, outcome)
                self.in_flight.difference_update(group)
            if rest := dissection.rest():
                self.settle(joined(rest), failure)
        finally:
            self.in_flight.difference_update(parts)
