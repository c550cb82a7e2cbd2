"""The HTTP/1.1 protocol of one server: uvicorn's configuration and state, which its connections share.

uvicorn takes 10 MB of memory and 40 ms, so a server imports this module when the first client connects.
"""

from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from otel_zernel.net.connection import Connection
from otel_zernel.net.limits import ServerLimits


class HttpProtocol:
    """Creates the connections to an ASGI application."""

    def __init__(self, app: Any, limits: ServerLimits) -> None:
        self._config = Config(app, http=Connection, interface="asgi3", ws="none", lifespan="off", log_config=None)
        self._config.access_log = False
        self._config.timeout_keep_alive = limits.idle_time  # type: ignore[assignment]  # a delay of `call_later`
        self._config.load()
        self._limits = limits
        self.state = ServerState()

    def connection(
        self,
        idle: dict[Connection, None],
        opened: Callable[[], None],
        spoke: Callable[[bytes], None],
        *,
        surplus: bool,
    ) -> Connection:
        """A new connection, see `Connection`."""
        return Connection(self._config, self.state, self._limits, idle, opened, spoke, surplus=surplus)

    def set_date(self, seconds: int) -> None:
        """Sets the date header of the next answers, in seconds since 1970."""
        self.state.default_headers = [(b"date", formatdate(seconds, usegmt=True).encode())]
