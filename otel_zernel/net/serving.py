"""HTTP servers: an ASGI application is served on an address while a context is entered."""

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
    """Serves an ASGI application. Yields the actual address: port 0 is replaced by the chosen port.

    Error messages start with `setting`, the configuration key of the address (`exporters::prometheus::endpoint`).
    Raises `CannotStart` if the collector cannot listen on the address.
    """
    import uvicorn  # takes 10 MB of memory, so it is imported only by servers

    ready = asyncio.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            try:
                await super().startup(sockets)
            finally:
                ready.set()

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # the collector handles signals itself

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
    """A listening socket on the address. IPv4 is preferred if the name has both. Raises `CannotStart`."""
    try:
        candidates = socket.getaddrinfo(address.host or "0.0.0.0", address.port, type=socket.SOCK_STREAM)  # noqa: S104
        family, kind, protocol, _, socket_address = min(candidates, key=lambda one: one[0] != socket.AF_INET)
    except OSError as error:
        raise CannotStart(
            f"{setting}: cannot resolve {address}: {error.strerror or error}; check the host name"
        ) from error
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(socket_address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise CannotStart(f"{setting}: cannot listen on {address}: {_advice(error)}") from error
    listener.setblocking(False)
    return listener


def _advice(error: OSError) -> str:
    advice = {
        errno.EADDRINUSE: "another program has this port; stop it or choose another port",
        errno.EADDRNOTAVAIL: "this machine has no such address; use one of its own, or 0.0.0.0 for all of them",
        errno.EACCES: "ports below 1024 require root; choose a higher port",
    }
    return advice.get(error.errno or 0, error.strerror or str(error))
