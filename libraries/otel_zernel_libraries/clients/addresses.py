"""The addresses behind a host name, in turn: requests are spread over all gateways of a service."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from otel_zernel.clock import Clock

RENEWAL = 30.0
"""Seconds after which a name is resolved again, since gateways come and go."""

LOCALHOST = "localhost"
_LOOPBACK = ("127.0.0.1", "::1")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Gives the IP addresses of a host and port, at least one. Raises OSError."""


async def resolve(host: str, port: int) -> list[str]:
    """The IP addresses of a host by the resolver of the system, each once. Raises OSError.

    `localhost` always has both families (RFC 6761, 6.3): many systems list one only, and the server may have the other.
    """
    if host == LOCALHOST:
        return list(_LOOPBACK)
    getaddrinfo = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = dict.fromkeys(str(address[0]) for *_, address in getaddrinfo)
    return [address for address in addresses if "%" not in address] or [
        host
    ]  # a URL cannot carry the zone of a link-local address


class Addresses:
    """The addresses of one host. An address that failed comes last until the name is resolved again."""

    def __init__(self, host: str, port: int, clock: Clock, resolve: Resolve = resolve) -> None:
        self._host = host
        self._port = port
        self._clock = clock
        self._resolve = resolve
        self._known: list[str] = []
        self._failed: set[str] = set()
        self._turn = 0
        self._renew_at = 0.0

    async def in_turn(self) -> list[str]:
        """All addresses, beginning with the next one in turn. Raises OSError if the name was never resolved."""
        if not self._known or self._clock.monotonic() >= self._renew_at:
            await self._renew()
        self._turn += self._host != LOCALHOST  # its addresses are one machine: the second is tried if the first fails
        start = self._turn % len(self._known)
        rotated = self._known[start:] + self._known[:start]
        return sorted(rotated, key=self._failed.__contains__)

    @property
    def known(self) -> Sequence[str]:
        """All addresses of the last resolution."""
        return self._known

    def fail(self, address: str) -> None:
        """Notes that no connection to the address was possible."""
        self._failed.add(address)

    async def _renew(self) -> None:
        """Resolves the name. While that fails, the known addresses stay in use."""
        self._renew_at = self._clock.monotonic() + RENEWAL  # others use the known addresses meanwhile
        try:
            addresses = sorted(await self._resolve(self._host, self._port))
        except OSError:
            if not self._known:
                raise
        else:
            self._known = addresses
            self._failed = set()


def is_address(host: str) -> bool:
    """Whether the host of a URL is an IP address."""
    return _address(host) is not None


def is_loopback(host: str) -> bool:
    """Whether the host of a URL is this machine."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
