"""The zernel receiver: connects to a feed, reads its messages, and connects again."""

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Receiver
from otel_zernel.errors import CannotStart, Refused, Rejected, Retryable
from otel_zernel.text import visible
from otel_zernel_libraries.clients.addresses import is_loopback
from otel_zernel_libraries.clients.credentials import Credentials
from otel_zernel_libraries.clients.tls import TlsFiles, client_context
from otel_zernel_libraries.extras import missing_packages
from otel_zernel_receivers.zernel.config import ZernelConfig
from otel_zernel_receivers.zernel.message import FeedMessage, UnreadableMessage, read_message
from otel_zernel_receivers.zernel.series import FeedSeries

if TYPE_CHECKING:
    from otel_zernel_receivers.zernel.connection import FeedConnection

_MUCH: Final = 1 << 16
"""Bytes of a message that is parsed in a thread: it takes milliseconds."""


class ZernelReceiver(Receiver):
    """Reads the live feed of another collector, or of a GPU workload daemon, over WebSocket."""

    Config = ZernelConfig
    stability = "alpha"
    signals = frozenset({"metrics"})

    @classmethod
    def missing(cls) -> str | None:
        return missing_packages("the zernel receiver", "websockets")

    def __init__(self, config: ZernelConfig, context: Context) -> None:
        super().__init__(config, context)
        self._credentials = Credentials(config.auth, context)
        self._tls_files = TlsFiles(config.tls, context)
        self._ssl: ssl.SSLContext | None = None
        self._wait = config.initial_interval
        self._is_down = False

    async def run(self, emit: Emit) -> None:
        """Reads until cancelled. Raises `CannotStart` for unusable certificates or a missing extension."""
        self._credentials.open(unprotected=self.config.is_unprotected)
        if self.config.url.scheme == "wss":
            self._ssl = client_context(await self._tls_files.read(), self.config.tls, f"{self.context.path}::tls")
        connection = await asyncio.to_thread(_connection, self.config)
        series = FeedSeries(self._resource())
        while True:
            problem = await self._read(connection, series, emit)
            await self._emit(series, series.ends(self.context.clock.time_ns()), emit)
            self._report(problem)
            wait, self._wait = self._wait, min(self._wait * 2, self.config.max_interval)
            await self.context.clock.sleep(wait)

    async def _read(self, connection: "FeedConnection", series: FeedSeries, emit: Emit) -> str:
        """Reads the messages of one connection. Returns the reason for its end."""
        try:
            headers = {name: value.get_secret_value() for name, value in self.config.headers.items()}
            await self._renew_tls()
            async with connection.open({**headers, **self._credentials.headers()}, self._ssl) as messages:
                async for data in messages:
                    if (message := await self._message(data)) is not None:
                        self._recovered()
                        await self._emit(series, series.batch(message, self.context.clock.time_ns()), emit)
        except connection.failures as error:
            return connection.reason(error)
        except (Retryable, CannotStart) as error:
            return str(error)
        return connection.reason(None)

    async def _renew_tls(self) -> None:
        """Takes changed certificates. Raises `CannotStart` if they are unusable: the next attempt has the old ones."""
        if self._ssl and (pem := await self._tls_files.changed()):
            self._ssl = await asyncio.to_thread(client_context, pem, self.config.tls, f"{self.context.path}::tls")

    async def _message(self, data: bytes) -> FeedMessage | None:
        """The message; None if it cannot be read. Counts what cannot be read."""
        try:
            message = await asyncio.to_thread(read_message, data) if len(data) > _MUCH else read_message(data)
        except UnreadableMessage:
            self.context.drop(1, "unreadable_message")
            return None
        for count, reason in ((message.faults, "unreadable_field"), (message.surplus, "max_processes")):
            if count:
                self.context.drop(count, reason)
        return message

    async def _emit(self, series: FeedSeries, batch: Batch, emit: Emit) -> None:
        count = batch.item_count
        if not count:
            return
        try:
            await emit(batch)
        except Refused:
            self.context.drop(count, "refused")  # the next message has newer values
        except Rejected:
            return
        else:
            series.accepted()

    def _recovered(self) -> None:
        """A good message has come."""
        self._wait = self.config.initial_interval
        if self._is_down:
            self._is_down = False
            self.context.logger.info("The feed %s is back", self.config.endpoint)
        self.context.report(None)

    def _report(self, problem: str) -> None:
        sentence = f"no feed from {self.config.endpoint}: {visible(problem)}"
        self.context.report(sentence)
        if not self._is_down:
            self._is_down = True
            self.context.logger.warning("No feed from %s, trying again: %s", self.config.endpoint, visible(problem))

    def _resource(self) -> dict[str, Any]:
        """The machine of the feed. A feed does not name it, so it is the host in the URL."""
        host, port = self.config.host, self.config.port
        name = socket.gethostname() if is_loopback(host) else host
        return {"host.name": name, "server.address": host, "server.port": port}


def _connection(config: ZernelConfig) -> "FeedConnection":
    """Runs in a thread: the package websockets takes 70 ms."""
    from otel_zernel_receivers.zernel.connection import FeedConnection

    return FeedConnection(config)
