"""The `Export` methods over gRPC: credentials first, then the message as far as there is room."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from otel_zernel.authentication import ServerAuthenticator
from otel_zernel.batch import Signal
from otel_zernel_libraries.serving.http2 import Call
from otel_zernel_libraries.serving.requests.decompression import decompress
from otel_zernel_libraries.serving.requests.failures import (
    RequestFailure,
    check_credentials,
    unexpected,
    unserved,
    unsupported,
)
from otel_zernel_receivers.otlp.intake import OtlpIntake, unused
from otel_zernel_receivers.otlp.threads import in_thread_if_large

TRANSPORT: Final = "grpc"
COMPRESSIONS: Final = ("gzip", "deflate", "zstd")


class ExportMethod:
    """Answers the calls of one signal."""

    streams = False

    def __init__(
        self, signal: Signal, intake: OtlpIntake, authenticator: ServerAuthenticator | None, max_message: int
    ) -> None:
        self._signal: Signal = signal
        self._intake = intake
        self._authenticator = authenticator
        self._max_message = max_message

    def begin(self, call: Call) -> None:
        if self._authenticator:
            call.task = asyncio.create_task(self._authenticate(call, self._authenticator), name="otlp authentication")
        elif self._signal not in self._intake.signals:
            raise unserved(unused(self._signal))

    def received(self, call: Call, message: bytes) -> None:
        is_plain = not (call.task or call.encoding) and self._signal in self._intake.signals
        batch = self._intake.decode_at_once(self._signal, message) if is_plain else None
        if batch is None:
            call.task = asyncio.create_task(self._answer(call, message, call.task), name="otlp request")
        elif self._intake.accept_at_once(batch, TRANSPORT):  # a task would take half of the time of a small request
            call.succeed(b"")
        else:
            accept = partial(self._intake.accept, batch, TRANSPORT)
            call.task = asyncio.create_task(self._finish(call, accept), name="otlp request")

    def ended(self, call: Call) -> None:
        """`received` has begun the answer."""

    def failed(self, failure: RequestFailure) -> None:
        self._intake.count(failure, TRANSPORT)

    async def _authenticate(self, call: Call, authenticator: ServerAuthenticator) -> None:
        try:
            await check_credentials(authenticator, call.headers)
        except RequestFailure as failure:
            call.fail(failure)

    async def _answer(self, call: Call, message: bytes, authentication: "asyncio.Task[None] | None") -> None:
        if authentication:
            await authentication
        if not call.closed:
            await self._finish(call, partial(self._take, call, message))

    async def _finish(self, call: Call, work: Callable[[], Awaitable[None]]) -> None:
        """Answers the call when the work is done."""
        try:
            await work()
            call.succeed(b"")
        except RequestFailure as failure:
            call.fail(failure)
        except Exception:
            call.fail(unexpected())
            raise

    async def _take(self, call: Call, message: bytes) -> None:
        if self._signal not in self._intake.signals:
            raise unserved(unused(self._signal))
        if call.encoding and call.encoding != "identity":
            message = await self._decompressed(call, message)
        await self._intake.accept(await self._intake.decode(self._signal, message), TRANSPORT)

    async def _decompressed(self, call: Call, message: bytes) -> bytes:
        if call.encoding not in COMPRESSIONS:
            known = ", ".join(COMPRESSIONS)
            raise unsupported(f"grpc-encoding {call.encoding:.100} is not supported; use {known}")
        size, limit = len(message) * 4, self._max_message
        message = await in_thread_if_large(size, decompress, call.encoding, message, limit, "max_recv_msg_size_mib")
        call.hold.add(len(message))
        return message
