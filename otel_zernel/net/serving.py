"""HTTP servers of the collector and its components: an ASGI application on an address, for as long as it is entered."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from otel_zernel.errors import CannotStart
from otel_zernel.types import Address


@asynccontextmanager
async def serve(app: Any, address: Address, setting: str) -> AsyncIterator[Address]:
    """Serves an ASGI application; yields the real address (the port, where 0 was asked for).

    `setting` names the configuration key of the address (`exporters::prometheus::endpoint`). Raises `CannotStart` where
    the address is taken or not ours.
    """
    import uvicorn  # costs 10 MB: only those who serve pay

    ready = asyncio.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                await super().startup(sockets)
            finally:
                ready.set()

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the collector's signals are the service's business

    listener = listen(address, setting)
    config = uvicorn.Config(
        app, interface="asgi3", log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1
    )
    server = Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name=f"serve {setting}")
    try:
        await ready.wait()
        host, port = listener.getsockname()[:2]
        yield Address(host, port)
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await serving
        listener.close()


def listen(address: Address, setting: str) -> socket.socket:
    """A listening socket on the address, IPv4 where the name has both. Raises `CannotStart`."""
    try:
        found = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)  # noqa: S104
        family, kind, protocol, _, place = min(found, key=lambda one: one[0] != socket.AF_INET)
    except OSError as error:
        raise CannotStart(f"{setting}: cannot resolve {address}: {error.strerror or error}") from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise CannotStart(f"{setting}: cannot listen on {address}: {_advice(error)}") from error
    listener.setblocking(False)
    return listener


def _advice(error: OSError) -> str:
    advice = {
        errno.EADDRINUSE: "another program has this port; stop it or choose another port",
        errno.EADDRNOTAVAIL: "this machine has no such address",
        errno.EACCES: "ports below 1024 need root; choose a higher one",
    }
    return advice.get(error.errno or 0, error.strerror or str(error))
