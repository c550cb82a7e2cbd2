"""The `Export` methods over gRPC: credentials first, then room, then the message.

The methods are registered as client-streaming although they are unary: the bytes on the wire are the same, and gRPC
then reads the message only when the handler asks for it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from google.rpc.code_pb2 import Code
from grpc.aio import ServicerContext

from otel_zernel.authentication import ServerAuthenticator, Unauthenticated
from otel_zernel.batch import Signal
from otel_zernel_receivers.otlp.failures import Failure, too_slow, unauthenticated, undecodable, unserved
from otel_zernel_receivers.otlp.intake import Intake
from otel_zernel_receivers.otlp.services import unused

TRANSPORT: Final = "grpc"
READ_TIME: Final = 30.0
"""Seconds in which a message must arrive."""
SLOW_AFTER: Final = 1.0
"""Seconds after which a message that still arrives is slow."""
MOST_SLOW: Final = 32
"""Slow messages at the same time. Beyond, the oldest is refused: each may fill `max_recv_msg_size_mib` and stall."""

_CODES: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}
Context: TypeAlias = "ServicerContext[Any, Any]"


class Reads:
    """The messages that are arriving: bounded in time, and the slow ones in number."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock in seconds."""
        self._now = now
        self._started: OrderedDict[asyncio.Task[Any], float] = OrderedDict()
        """By task, the oldest first."""

    async def read(self, context: Context) -> bytes:
        """The message of a call. Raises `Failure` if it does not arrive in time."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine runs in a task
        self._started[task] = self._now()
        try:
            message = await context.read()
        except asyncio.CancelledError:
            if task in self._started:
                raise
            raise too_slow("the message arrives too slowly") from None
        finally:
            self._started.pop(task, None)
        if isinstance(message, bytes):
            return message
        raise undecodable("the request has no message")

    def sweep(self) -> None:
        """Ends the messages that are too slow. To be called several times a second."""
        now = self._now()
        slow = [task for task, start in self._started.items() if now - start > SLOW_AFTER]
        for position, task in enumerate(slow):
            if len(slow) - position > MOST_SLOW or now - self._started[task] > READ_TIME:
                del self._started[task]
                task.cancel()


class ExportCalls:
    """Answers the calls of one signal."""

    def __init__(self, signal: Signal, intake: Intake, reads: Reads, authenticator: ServerAuthenticator | None) -> None:
        self._signal: Signal = signal
        self._intake = intake
        self._reads = reads
        self._authenticator = authenticator

    async def export(self, _requests: object, context: Context) -> bytes:
        """The answer to one call: an empty response, which means success."""
        try:
            await self._export(context)
        except Failure as failure:
            self._intake.count(failure, TRANSPORT)
            await abort(context, failure)
        return b""

    async def _export(self, context: Context) -> None:
        if self._authenticator:
            await check(self._authenticator, context)
        if self._signal not in self._intake.signals:
            raise unserved(unused(self._signal))
        with self._intake.room.hold() as hold:
            hold.check()
            message = await self._reads.read(context)
            hold.add(len(message))
            await self._intake.take(self._signal, message, TRANSPORT)


async def check(authenticator: ServerAuthenticator, context: Context) -> None:
    """Raises `Failure` if a call has no valid credentials."""
    metadata = {name: value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    try:
        await authenticator.authenticate(metadata)
    except Unauthenticated as error:
        raise unauthenticated(str(error)) from error


async def abort(context: Context, failure: Failure) -> NoReturn:
    """Ends a call with a failure. `RetryInfo` travels in the trailing metadata."""
    trailing: tuple[tuple[str, bytes], ...] = ()
    if failure.retry_after is not None or failure.code == Code.UNAVAILABLE:
        trailing = (("grpc-status-details-bin", failure.as_status().SerializeToString()),)
    await context.abort(_CODES[failure.code], str(failure), trailing)
