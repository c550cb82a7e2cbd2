"""One connection to the master: registration, then heartbeats by a stream or by calls, until it fails."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from otel_zernel.component import Context
from otel_zernel.errors import ZernelError
from otel_zernel_exporters.heartbeat.config import HeartbeatConfig
from otel_zernel_exporters.heartbeat.pace import HeartbeatPace
from otel_zernel_exporters.heartbeat.state import WorkerState
from otel_zernel_libraries.cluster.messages import (
    REGISTER_WORKER,
    SEND_HEARTBEAT,
    STREAM_HEARTBEATS,
    WORKER_TOKEN,
    HeartbeatAck,
)

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc.aio import Channel

Credentials = Callable[[], Mapping[str, str]]
OnAnswer = Callable[[str], None]
"""Called with the method of an answered heartbeat."""


_TOKEN: Final = secrets.token_hex(16)
"""By this token, a master recognizes this process after a lost connection or a reload."""


class MasterRefuses(ZernelError):
    """The master does not accept this worker."""


class NotAMaster(ZernelError):
    """The server answers, but not as a master does."""


class MasterLost(ZernelError):
    """The connection ended without an error: the master has closed it, or a new one has replaced it."""


class MasterSession:
    """Talks to the master over one channel. Every way out of `run` is an exception."""

    def __init__(
        self,
        channel: "Channel",
        config: HeartbeatConfig,
        context: Context,
        state: WorkerState,
        pace: HeartbeatPace,
        credentials: Credentials,
        on_answer: OnAnswer,
    ) -> None:
        self._channel = channel
        self._config = config
        self._clock = context.clock
        self._state = state
        self._pace = pace
        self._credentials = credentials
        self._on_answer = on_answer

    async def run(self) -> None:
        """Raises `AioRpcError`, `MasterRefuses`, `MasterLost`, `NotAMaster`, TimeoutError, or `Retryable` without
        credentials."""
        await self._first_state()
        await self._register()
        if not await self._stream():
            await self._call_each()

    async def _first_state(self) -> None:
        """Waits for the first usage, for one interval at most: a heartbeat of zeros would be a wrong state."""
        until = self._clock.monotonic() + self._config.interval
        while not self._state.is_known(now := self._clock.monotonic()) and now < until:
            await self._clock.sleep(min(0.1, until - now))

    async def _register(self) -> None:
        """A master without the method learns of the worker by its heartbeats."""
        import grpc

        info = await asyncio.to_thread(self._state.introduction, self._clock.monotonic())
        try:
            accepted = await self._call(REGISTER_WORKER, info)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                raise
        else:
            self._check(accepted)

    def _check(self, accepted: bool) -> None:
        if not accepted:
            raise MasterRefuses(
                f"the master refuses the worker {self._state.worker_id}; add it to the master's workers, or set"
                " worker_id to one of them"
            )

    async def _call(self, method: str, message: Any) -> bool:
        """One request, and whether the master accepted it."""
        call = self._channel.unary_unary(method, None, None)
        return _accepts(
            await call(message.SerializeToString(), timeout=self._config.timeout, metadata=self._metadata())
        )

    def _metadata(self) -> Any:
        return (*self._credentials().items(), (WORKER_TOKEN, _TOKEN))

    async def _stream(self) -> bool:
        """Sends over one stream. Returns False if the master has no such method."""
        import grpc

        method: Any = self._channel.stream_stream(STREAM_HEARTBEATS, None, None)
        call = method(metadata=self._metadata())  # the stubs require requests, which are written one by one
        try:
            while True:
                await self._wait()
                async with asyncio.timeout(self._config.timeout):
                    answer = await _exchange(call, self._next())
                if answer is _ENDED:
                    if await call.code() is grpc.StatusCode.UNIMPLEMENTED:
                        return False
                    raise MasterLost(await call.details() or "the master has ended the stream")
                self._answered("StreamHeartbeats", _accepts(answer))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return False
            raise
        finally:
            call.cancel()

    async def _wait(self) -> None:
        """Waits until the next heartbeat is due, and registers again if the totals have changed."""
        await self._clock.sleep(self._pace.wait(self._clock.monotonic()))
        if not self._state.is_introduced(self._clock.monotonic()):
            await self._register()

    def _next(self) -> bytes:
        """The next heartbeat, of the state of this moment."""
        encoded: bytes = self._state.heartbeat(self._clock.monotonic()).SerializeToString()
        return encoded

    async def _call_each(self) -> None:
        """Sends by calls. A connection that is lost between two calls is noticed: the master may be a new one."""
        import grpc

        lost = asyncio.create_task(self._channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
        try:
            while True:
                await self._wait()
                if lost.done():
                    raise MasterLost("the connection to the master was lost")
                heartbeat = self._state.heartbeat(self._clock.monotonic())
                self._answered("SendHeartbeat", await self._call(SEND_HEARTBEAT, heartbeat))
        finally:
            lost.cancel()

    def _answered(self, method: str, accepted: bool) -> None:
        self._check(accepted)
        self._pace.sent(self._clock.monotonic())
        self._on_answer(method)


_ENDED: Final = object()


async def _exchange(call: Any, message: bytes) -> Any:
    """Sends a message on a stream, and returns its answer, or `_ENDED`."""
    try:
        await call.write(message)
    except asyncio.InvalidStateError:  # the call has ended; its status says why
        return _ENDED
    answer = await call.read()
    return answer if isinstance(answer, bytes) else _ENDED  # gRPC's EOF


def _accepts(answer: bytes) -> bool:
    """Whether the master accepts the worker. Raises `NotAMaster` if the answer is no `HeartbeatAck`."""
    try:
        return bool(HeartbeatAck.FromString(answer).success)
    except DecodeError as error:
        raise NotAMaster("the answer is not a cluster.HeartbeatAck; check that the endpoint is a master") from error
