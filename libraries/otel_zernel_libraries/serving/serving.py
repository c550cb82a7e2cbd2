"""HTTP servers: an ASGI application is served on an address while a context is entered."""

import contextlib
import errno
import logging
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from otel_zernel.authentication import AuthConfig, server_authenticator
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart
from otel_zernel.runtime.handover import HANDOVER, ListeningPlace
from otel_zernel.types import Address
from otel_zernel_libraries.serving.access import protected
from otel_zernel_libraries.serving.api.routes import App
from otel_zernel_libraries.serving.http1.server import HttpServer
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.misdirected import Misdirected
from otel_zernel_libraries.serving.tls import served_tls
from otel_zernel_libraries.serving.tls_config import ServerTlsConfig

_logger = logging.getLogger("otel_zernel_libraries.serving")
Place = TypeVar("Place", Address, Path)
"""An address of TCP, or the path of a unix socket."""

_BACKLOG: Final = 128
_SOCKET_MODE: Final = 0o660
"""The permissions of a unix socket: its owner and its group may connect."""


@asynccontextmanager
async def serve(
    app: Any,
    place: Place,
    setting: str,
    *,
    tls: Callable[[], ssl.SSLContext] | None = None,
    limits: ServerLimits | None = None,
    is_browsed: bool = False,
) -> AsyncIterator[Place]:
    """Serves an ASGI application. Yields the actual address: port 0 is replaced by the chosen port.

    Error messages start with `setting`, the configuration key of the address (`exporters::prometheus::endpoint`).
    `is_browsed` says that requests for unknown paths are ordinary, and not worth a warning.
    `tls` returns the context for the next connection (`ServerTls.context`); None serves without TLS. At the exit,
    running requests have 1 s to finish.
    Raises `CannotStart` if the collector cannot listen on the address.
    """
    server = HttpServer(app, limits or ServerLimits(), tls, Misdirected(setting, is_browsed=is_browsed))
    with listening(place, setting) as (listeners, actual):
        async with server.serving(listeners):
            yield actual


@contextmanager
def listening(place: Place, setting: str) -> Iterator[tuple[list[socket.socket], Place]]:
    """Listening sockets, two for `localhost` if the machine has both families, and the actual address.

    Raises `CannotStart`.
    """
    listeners = listen_all(place, setting) if isinstance(place, Address) else [listen_unix(place, setting)]
    try:
        yield listeners, Address(*listeners[0].getsockname()[:2]) if isinstance(place, Address) else place
    finally:
        for listener in listeners:
            listener.close()
        if isinstance(place, Path):
            _unlink(place)


def listen_all(address: Address, setting: str) -> list[socket.socket]:
    """Listening sockets on the address: for `localhost` on both 127.0.0.1 and ::1 where the machine has both.

    Clients choose either. The first socket has the address that messages name. Raises `CannotStart`.
    """
    first = listen(address, setting)
    if address.host != "localhost" or first.family != socket.AF_INET:
        return [first]
    second = Address("::1", first.getsockname()[1])
    try:
        return [first, listen(second, setting)]
    except CannotStart as error:
        if error.address_is_taken:
            _logger.warning("%s: another program listens on %s; clients may reach it by localhost", setting, second)
        return [first]


def listen(address: Address, setting: str) -> socket.socket:
    """A listening socket on the address. IPv4 is preferred if the name has both. Raises `CannotStart`.

    After a reload, it is the socket of the component's former instance if the address is the same.
    """
    try:
        host = address.host or "0.0.0.0"  # noqa: S104
        plain = host.encode() if host.isascii() else host  # for text, Python would import the tables of IDNA
        candidates = socket.getaddrinfo(plain, address.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, socket_address = min(
            candidates, key=lambda candidate: candidate[0] != socket.AF_INET
        )
    except OSError as error:
        raise CannotStart(
            f"{setting}: cannot resolve {address}: {error.strerror or error}; check the host name"
        ) from error
    listening = ListeningPlace(setting, socket_address)
    listener = HANDOVER.take(listening)
    if listener is None:
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener = _listening(listener, socket_address, setting, str(address))
    if address.port:
        HANDOVER.opened(listening, listener)
    return listener


def listen_unix(path: Path, setting: str) -> socket.socket:
    """A listening unix socket, with mode 0660. Replaces the socket of a program that has ended.

    Raises `CannotStart`.
    """
    if _is_socket(path) and not _answers(path):
        _unlink(path)
    return _listening(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), str(path), setting, str(path))


def _listening(listener: socket.socket, address: Any, setting: str, name: str) -> socket.socket:
    try:
        _bind(listener, address)
        if listener.family == socket.AF_UNIX:
            os.chmod(address, _SOCKET_MODE)  # noqa: PTH101  # before `listen`, so nobody has connected
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise CannotStart(f"{setting}: cannot listen on {name}: {_advice(error, listener)}") from error
    listener.setblocking(False)
    return listener


def _bind(listener: socket.socket, address: Any) -> None:
    """Binds, also to a port that is held for the next instance of another component: two may exchange their ports."""
    try:
        listener.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not HANDOVER.release():
            raise
        listener.bind(address)


def _is_socket(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(path.lstat().st_mode)
    return False


def _answers(path: Path) -> bool:
    """Whether a program listens on the unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            return True
        return True


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _advice(error: OSError, listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        advice = {
            errno.EADDRINUSE: "the path exists; stop the program that uses it, or choose another path",
            errno.ENOENT: "the directory does not exist; create it",
            errno.EACCES: "permission denied; choose a directory that the collector may write to",
        }
    else:
        advice = {
            errno.EADDRINUSE: "another program has this port; stop it or choose another port",
            errno.EADDRNOTAVAIL: "this machine has no such address; use one of its own, or 0.0.0.0 for all of them",
            errno.EACCES: "ports below 1024 require root; choose a higher port",
        }
    return advice.get(error.errno or 0, error.strerror or str(error))


@asynccontextmanager
async def serve_guarded(
    app: App,
    place: Place,
    context: Context,
    *,
    tls: ServerTlsConfig | None,
    auth: AuthConfig | None,
    limits: ServerLimits | None = None,
) -> AsyncIterator[Place]:
    """Serves an ASGI application as `serve` does, with TLS and authentication if they are configured.

    The section of the component has `endpoint`, `tls` and `auth`. Raises `CannotStart`.
    """
    section = context.path
    guarded = protected(app, server_authenticator(auth, context, f"{section}::auth"))
    async with (
        served_tls(tls, f"{section}::tls", context) as certificate,
        serve(guarded, place, setting=f"{section}::endpoint", tls=certificate, limits=limits) as actual,
    ):
        yield actual
