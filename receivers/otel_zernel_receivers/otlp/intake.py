"""The path of a request that both transports share: from its bytes into the pipelines."""

import time
from functools import partial
from typing import Final

from otel_zernel.batch import Batch, Signal
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.thin import TooManyContainers, count_at_once
from otel_zernel.component import Context, Emit, ImmediateEmit
from otel_zernel.errors import DecodeError, Refused, Rejected
from otel_zernel.net.requests.failures import RequestFailure, busy, rejected, undecodable
from otel_zernel.net.requests.room import Room
from otel_zernel_receivers.otlp.declared import REFUSED_REQUESTS
from otel_zernel_receivers.otlp.threads import in_thread

_AT_ONCE: Final = 320 << 10
"""Bytes of a request that is counted in the event loop. 1,000 data points have 280 kB, which takes 0.3 ms; a thread and
pieces would double the cost of a request. A hostile body of this size takes about 20 ms."""
_FEW_CONTAINERS: Final = 2000
"""Resources, scopes and metrics that are looked at on the event loop. Each takes up to 4 us."""


class OtlpIntake:
    """Hands requests over to the pipelines, and counts those that are not accepted."""

    def __init__(self, emit: Emit, context: Context, limit: int) -> None:
        self.signals = context.signals
        """The signals that the pipelines use."""
        self.room = Room(limit, context.clock.monotonic)
        self._emit = emit
        self._emit_at_once = emit.at_once if isinstance(emit, ImmediateEmit) else None
        self._refused = context.meter.create_counter(*REFUSED_REQUESTS.counter)

    def decode_at_once(self, signal: Signal, body: bytes) -> Batch | None:
        """The batch in an encoded export request, checked and counted; None if that may take long.

        Raises `RequestFailure`.
        """
        if len(body) > _AT_ONCE:
            return None
        try:
            seen: set[int] = set()
            return Batch.of_signal(signal, body, count_at_once(signal, body, _FEW_CONTAINERS, seen), seen)
        except TooManyContainers:
            return None
        except DecodeError as error:
            raise _undecodable(error) from error

    async def decode(self, signal: Signal, body: bytes) -> Batch:
        """The batch in an encoded export request, checked and counted. Raises `RequestFailure`."""
        if batch := self.decode_at_once(signal, body):
            return batch
        try:
            seen: set[int] = set()
            count = await in_thread(partial(count_encoded, signal, body, temporalities=seen, rest=time.sleep))
            return Batch.of_signal(signal, body, count, seen)
        except DecodeError as error:
            raise _undecodable(error) from error

    def accept_at_once(self, batch: Batch, transport: str) -> bool:
        """Whether the pipelines have accepted the batch, or it is empty. If not, `accept` waits or raises."""
        if not batch.item_count:
            return True
        return self._emit_at_once is not None and self._emit_at_once(batch, transport=transport)

    async def accept(self, batch: Batch, transport: str) -> None:
        """Returns when the pipelines have accepted the batch. An empty one needs none. Raises `RequestFailure`."""
        if not batch.item_count:
            return
        try:
            await self._emit(batch, transport=transport)
        except Refused as error:
            raise busy(error) from error
        except Rejected as error:
            raise rejected(f"the collector cannot accept this request: {error}") from error

    def count(self, failure: RequestFailure, transport: str) -> None:
        """Counts a request that is not accepted."""
        self._refused.add(1, {"reason": failure.reason, "transport": transport})


def _undecodable(error: DecodeError) -> RequestFailure:
    return undecodable(f"the request is not a valid OTLP message: {error}")
