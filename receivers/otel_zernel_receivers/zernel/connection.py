"""A connection to a feed, by the package websockets."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus, WebSocketException

from otel_zernel_receivers.zernel.config import ZernelConfig

_CLOSING: Final = 0.5
"""Seconds for the server's answer to a close: a receiver has to end within 1 s."""
_OPENING: Final = 10.0
"""Seconds for the connection and its handshake."""
_QUEUED: Final = 4
"""Messages that wait in memory. Beyond, the server has to wait."""
_ADVICE: Final[Mapping[int, str]] = {
    401: "the server requires credentials; set auth::authenticator, or correct its credentials",
    403: "the server refuses this client; correct the credentials, or ask its owner for access",
    404: "nothing is served at this path; correct endpoint",
    426: "the server has no WebSocket at this path; correct endpoint",
    503: "the server has no room for another client",
}


class _Direct(connect):
    """Without redirects: credentials must not reach another server."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


async def _messages(connection: ClientConnection) -> AsyncIterator[bytes]:
    with suppress(ConnectionClosedOK):
        while True:
            yield await connection.recv(decode=False)


class FeedConnection:
    """Opens connections to one feed."""

    failures: tuple[type[Exception], ...] = (OSError, WebSocketException, EOFError)
    """The errors of a connection that fails or ends. `TimeoutError` is an `OSError`."""

    def __init__(self, config: ZernelConfig) -> None:
        self._config = config

    @asynccontextmanager
    async def open(
        self, headers: Mapping[str, str], context: ssl.SSLContext | None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The messages of a connection. Raises one of `failures`.

        They are not decoded: by default, a text that is not UTF-8 would end the connection, each time anew.
        """
        options: dict[str, Any] = {"ssl": context} if context else {}
        if context and self._config.tls.server_name_override:
            options["server_hostname"] = self._config.tls.server_name_override
        async with _Direct(
            self._config.endpoint,
            additional_headers=dict(headers),
            compression=None,
            proxy=None,
            max_size=self._config.max_message_size,
            max_queue=_QUEUED,
            open_timeout=_OPENING,
            close_timeout=_CLOSING,
            **options,
        ) as connection:
            yield _messages(connection)

    def reason(self, error: Exception | None) -> str:
        """Why there is no connection, in a sentence. None: the server has closed it in order."""
        if error is None:
            return "the server closed the connection"
        if isinstance(error, InvalidStatus):
            status = error.response.status_code
            return _ADVICE.get(status, f"the server answered with status {status}")
        if isinstance(error, ConnectionClosed):
            return self._closed(error)
        if isinstance(error, ssl.SSLError):
            return f"TLS failed ({error.reason or error}); check tls, and whether the server has TLS"
        if isinstance(error, ConnectionRefusedError) or "Multiple exceptions" in str(error):
            return "nothing listens there; start the server, or correct endpoint"
        if isinstance(error, TimeoutError):
            return f"no answer within {_OPENING:g} s"
        if isinstance(error, OSError):
            return error.strerror or str(error)
        return f"the answer is not a WebSocket ({error}); correct endpoint"

    def _closed(self, error: ConnectionClosed) -> str:
        if error.sent and error.sent.code == 1009 and not error.rcvd_then_sent:
            return f"a message is longer than {self._config.max_message_size} bytes; raise max_message_size"
        return "the connection was lost" if error.rcvd is None else "the server closed the connection"
