"""Where a protocol listens: an address of TCP or the path of a unix socket, resolved before a server starts."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from otel_zernel.errors import CannotStart
from otel_zernel.types import Address
from otel_zernel_libraries.serving.serving import listen_all, listen_unix
from otel_zernel_receivers.otlp.config import ProtocolConfig

_FAMILIES: Final = {"tcp": socket.AF_UNSPEC, "tcp4": socket.AF_INET, "tcp6": socket.AF_INET6}
_EVERY_INTERFACE: Final = {"tcp": "0.0.0.0", "tcp4": "0.0.0.0", "tcp6": "::"}  # noqa: S104  # as the user configures


async def resolve(config: ProtocolConfig, setting: str) -> Address | Path:
    """The place with a numeric host, or `localhost`, which has both families. Raises `CannotStart`.

    IPv4 is preferred if `tcp` leaves the choice.
    """
    if config.transport == "unix":
        return Path(config.endpoint)
    host, port = config.address
    host = host or _EVERY_INTERFACE[config.transport]
    if host == "localhost" and config.transport == "tcp":
        return Address(host, port)  # both families
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, family=_FAMILIES[config.transport], type=socket.SOCK_STREAM)
    except OSError as error:
        reason = error.strerror or error
        raise CannotStart(f"{setting}: cannot resolve {config.endpoint}: {reason}; check the host name") from error
    best = min(found, key=lambda one: one[0] != socket.AF_INET)
    return Address(str(best[4][0]), port)


@contextmanager
def listening(place: Address | Path, setting: str) -> Iterator[list[socket.socket]]:
    """Listening sockets: two for localhost, if the machine has both families. Raises `CannotStart` if it is taken."""
    listeners = listen_all(place, setting) if isinstance(place, Address) else [listen_unix(place, setting)]
    try:
        yield listeners
    finally:
        for listener in listeners:
            listener.close()
        if isinstance(place, Path):
            place.unlink(missing_ok=True)
