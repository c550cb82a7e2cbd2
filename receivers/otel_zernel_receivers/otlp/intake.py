"""The path of a request that both transports share: from its bytes into the pipelines."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from otel_zernel.batch import Batch, Signal
from otel_zernel.batch.pieces import count_encoded
from otel_zernel.batch.thin import TooManyContainers, count_at_once
from otel_zernel.component import Context, Emit, ImmediateEmit
from otel_zernel.errors import DecodeError, Refused, Rejected
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_libraries.serving.requests.failures import RequestFailure, busy, rejected, undecodable
from otel_zernel_libraries.serving.requests.room import Room
from otel_zernel_receivers.otlp.declared import REFUSED_REQUESTS

T = TypeVar("T")

LARGE: Final = 128 << 10
"""Bytes. Decoding 128 KiB of JSON takes 4 ms, and decompressing to 128 KiB 0.5 ms."""


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Runs a function in a thread. A cancellation waits for its end, since its arguments take memory until then.

    A function that has not begun is not called then.
    """
    cancelled = threading.Event()

    def work() -> T:
        if cancelled.is_set():
            raise InterruptedError("the request was given up")
        return function(*arguments)

    return await run_in_thread(work, interrupt=cancelled.set)


async def in_thread_if_large(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Runs a function that works on `size` bytes, as `in_thread` if they are many."""
    return await in_thread(function, *arguments) if size >= LARGE else function(*arguments)


_AT_ONCE: Final = 320 << 10
"""Bytes of a request that is counted in the event loop. 1,000 data points have 280 kB, which takes 0.3 ms; a thread and
pieces would double the cost of a request. A hostile body of this size takes 5 to 20 ms."""
_HARMLESS: Final = 32 << 10
"""Bytes of a request that is counted in the event loop even if hostile ones arrive: one takes up to 2 ms."""
_WARY: Final = 10.0
"""Seconds after a hostile request in which larger ones are counted in a thread."""
_LEAST_PART: Final = 8
"""The least average of an item or a container in bytes. A data point of two numbers has 20."""
_FEW_CONTAINERS: Final = 2000
"""Resources, scopes and metrics that are looked at on the event loop. Each takes up to 4 us."""


def unused(signal: Signal) -> str:
    """The answer to a signal that no pipeline uses."""
    return f"no pipeline with this otlp receiver uses {signal}; add the receiver to a {signal} pipeline"


class OtlpIntake:
    """Hands requests over to the pipelines, and counts those that are not accepted."""

    def __init__(self, emit: Emit, context: Context, limit: int) -> None:
        self.signals = context.signals
        """The signals that the pipelines use."""
        self.room = Room(limit, context.clock.monotonic)
        self._emit = emit
        self._emit_at_once = emit.at_once if isinstance(emit, ImmediateEmit) else None
        self._turn = asyncio.Lock()
        self._now = context.clock.monotonic
        self._wary_until = 0.0
        self._refused = context.meter.create_counter(*REFUSED_REQUESTS.counter)

    def decode_at_once(self, signal: Signal, body: bytes) -> Batch | None:
        """The batch in an encoded export request, checked and counted; None if that may take long.

        Raises `RequestFailure`.
        """
        size = len(body)
        if size > _HARMLESS and (size > _AT_ONCE or self._now() < self._wary_until):
            return None
        seen: set[int] = set()
        try:
            count = count_at_once(signal, body, _FEW_CONTAINERS, seen)
        except TooManyContainers as error:
            self._judge(size, error.found)
            return None
        except DecodeError as error:
            self._judge(size, size)
            raise _undecodable(error) from error
        self._judge(size, count)
        return Batch.encoded(signal, body, count, seen)

    def _judge(self, size: int, parts: int) -> None:
        """Becomes wary if the request has so many parts that it cannot be real data."""
        if size > _HARMLESS and parts * _LEAST_PART > size:
            self._wary_until = self._now() + _WARY

    async def decode(self, signal: Signal, body: bytes) -> Batch:
        """The batch in an encoded export request, checked and counted. Raises `RequestFailure`."""
        if batch := self.decode_at_once(signal, body):
            return batch
        try:
            seen: set[int] = set()
            check = partial(count_encoded, signal, body, temporalities=seen)
            count = await self.in_turn(check)
            return Batch.encoded(signal, body, count, seen)
        except DecodeError as error:
            raise _undecodable(error) from error

    async def in_turn(self, work: Callable[[], T]) -> T:
        """Runs the work on a large request in a thread, after that on earlier ones.

        Each thread that computes makes the event loop wait longer for Python's lock, and several are not faster than
        one.
        """
        async with self._turn:
            return await in_thread(work)

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
