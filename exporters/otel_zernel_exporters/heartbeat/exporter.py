"""The heartbeat exporter: keeps the latest state, and sends it from a task of its own."""

import asyncio
from typing import TYPE_CHECKING, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import ZernelError, invalid_is_permanent
from otel_zernel.runtime.tasks import cancel
from otel_zernel_exporters.heartbeat.config import HeartbeatConfig
from otel_zernel_exporters.heartbeat.declared import FAILURES, SENT, SKIPPED
from otel_zernel_exporters.heartbeat.pace import Backoff, HeartbeatPace
from otel_zernel_exporters.heartbeat.session import MasterSession
from otel_zernel_exporters.heartbeat.state import WorkerState
from otel_zernel_libraries.clients.causes import explained, without_noise
from otel_zernel_libraries.clients.channel import open_channel, security_of
from otel_zernel_libraries.clients.credentials import Credentials
from otel_zernel_libraries.clients.tls import TlsFiles

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc import ChannelCredentials
    from grpc.aio import AioRpcError


class HeartbeatExporter(Exporter):
    """Sends heartbeats of this worker to a master: usage of CPU, memory, GPUs and storage, and the running tasks."""

    Config = HeartbeatConfig
    stability = "beta"
    signals = frozenset({"metrics"})
    config: HeartbeatConfig

    def __init__(self, config: HeartbeatConfig, context: Context) -> None:
        super().__init__(config, context)
        meter = context.meter
        self._sent = meter.create_counter(*SENT.counter)
        self._skipped = meter.create_counter(*SKIPPED.counter)
        self._failures = meter.create_counter(*FAILURES.counter)
        self._credentials = Credentials(config.auth, context)
        self._tls = None if config.master.plaintext(config.tls) else TlsFiles(config.tls, context)
        self._state = WorkerState(config)
        self._backoff = Backoff()
        self._problem: str | None = ""
        """The logged problem; None while the master answers, empty before the first answer."""

    async def __aenter__(self) -> Self:
        self._credentials.open(unprotected=self.config.master.is_unprotected(self.config.tls))
        if self._tls:
            await self._tls.read()
        sending = asyncio.create_task(self._run(), name=f"heartbeats of {self.context.id}")
        self._stack.push_async_callback(cancel, sending)
        return self

    async def export(self, batch: Batch) -> None:
        """Only keeps the state: heartbeats have a pace of their own."""
        now = self.context.clock.monotonic()
        await batch.make_readable()
        with invalid_is_permanent():
            self._state.take(batch, now)

    async def _run(self) -> None:
        """Connects until cancelled."""
        import grpc

        clock = self.context.clock
        pace = HeartbeatPace(self.config.interval, self.config.jitter, clock.monotonic())
        while True:
            try:
                await self._connect(pace)
            except grpc.aio.AioRpcError as error:
                self._failed(self._sentence(error), error.code().name)
            except TimeoutError:
                self._failed(f"no answer within {self.config.timeout:g} s", "timeout")
            except ZernelError as error:
                self._failed(str(error), type(error).__name__)
            except Exception as error:  # a bug must not end the heartbeats: the master would take the worker for dead
                if self._failed(f"{type(error).__name__}: {error}", type(error).__name__):
                    self.context.logger.exception("Unexpected error in the heartbeats")
            await clock.sleep(self._backoff.next())
            if skipped := pace.skip(clock.monotonic()):
                self._skipped.add(skipped)

    async def _connect(self, pace: HeartbeatPace) -> None:
        """One session with the master. Every way out is an exception."""
        channel = open_channel(self.config.master.target, None, await self._security(), self.config.tls)
        credentials = self._credentials.headers
        try:
            session = MasterSession(channel, self.config, self.context, self._state, pace, credentials, self._answered)
            await session.run()
        finally:
            await channel.close(grace=None)

    async def _security(self) -> "ChannelCredentials | None":
        """The TLS of a new connection, by the files as they are now."""
        return security_of(await self._tls.read()) if self._tls else None

    def _answered(self, method: str) -> None:
        self._sent.add(1, {"rpc.method": method})
        self._backoff.reset()
        if self._problem is not None:
            self.context.logger.info("The master %s answers the heartbeats", self.config.endpoint)
            self._problem = None
            self.context.report(None)

    def _failed(self, reason: str, type_: str) -> bool:
        """Counts a failure, and logs it unless it is the last one again. Returns whether it is a new one."""
        self._failures.add(1, {"error.type": type_})
        sentence = f"{self.config.endpoint}: {reason}"
        self.context.report(f"the master accepts no heartbeats: {sentence}")
        is_new = reason != self._problem
        if is_new:
            self._problem = reason
            self.context.logger.warning(
                "The master accepts no heartbeats. The next attempt is within 30 s: %s", sentence
            )
        return is_new

    def _sentence(self, error: "AioRpcError") -> str:
        words = without_noise((error.details() or "")[:500])
        code = error.code().name
        plaintext = self.config.master.plaintext(self.config.tls)
        advice = self._credentials.advice if code in ("UNAUTHENTICATED", "PERMISSION_DENIED") else ""
        return f"{code}: {explained(words, 'heartbeat', plaintext=plaintext)}{advice}"
