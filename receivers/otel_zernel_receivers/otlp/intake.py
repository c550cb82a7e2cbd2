"""The path of a request that both transports share: from its bytes into the pipelines."""

from collections.abc import Iterator
from contextlib import contextmanager

from otel_zernel.batch import Batch, Signal
from otel_zernel.component import Context, Emit
from otel_zernel.errors import DecodeError, Refused, Rejected
from otel_zernel_receivers.otlp.failures import Failure, busy, overloaded, rejected, undecodable

_FIELDS: dict[Signal, str] = {"metrics": "metrics", "traces": "spans", "logs": "logs"}
"""The parameters of `Batch.from_bytes`."""


class Room:
    """The bytes of all requests that are being received and handed over, with a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0

    @contextmanager
    def hold(self) -> Iterator["Hold"]:
        """The share of one request, which is free again at the end."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self.used -= hold.size


class Hold:
    """The bytes of one request."""

    __slots__ = ("_room", "size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self.size = 0

    def add(self, size: int) -> None:
        """Takes room for `size` bytes more. Raises a `Failure` if there is none."""
        if self._room.used + size > self._room.limit:
            limit = self._room.limit >> 20
            raise overloaded(f"the receiver holds max_in_flight_mib ({limit} MiB) of requests; send again later")
        self._room.used += size
        self.size += size

    def check(self) -> None:
        """Raises a `Failure` if there is no room at all, before anything is read."""
        self.add(1)


class Intake:
    """Hands requests over to the pipelines, and counts those that are not accepted."""

    def __init__(self, emit: Emit, context: Context, limit: int) -> None:
        self.signals = context.signals
        """The signals that the pipelines use."""
        self.room = Room(limit)
        self._emit = emit
        self._refused = context.meter.create_counter(
            "zernel.otlp.refused_requests",
            "{request}",
            "Requests that the otlp receiver did not accept, by transport and reason.",
        )

    async def take(self, signal: Signal, body: bytes, transport: str) -> None:
        """Returns when the pipelines have accepted an encoded export request. Raises `Failure`."""
        try:
            batch = Batch.from_bytes(**{_FIELDS[signal]: body})
        except DecodeError as error:
            raise undecodable(f"the request is not a valid OTLP message: {error}") from error
        await self.accept(batch, transport)

    async def accept(self, batch: Batch, transport: str) -> None:
        """Returns when the pipelines have accepted the batch. An empty one needs no pipeline. Raises `Failure`."""
        if not batch.item_count:
            return
        try:
            await self._emit(batch, transport=transport)
        except Refused as error:
            raise busy(error) from error
        except Rejected as error:
            raise rejected(f"the collector cannot accept this request: {error}") from error

    def count(self, failure: Failure, transport: str) -> None:
        """Counts a request that is not accepted."""
        self._refused.add(1, {"reason": failure.reason, "transport": transport})
