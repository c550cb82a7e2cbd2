"""The way of a request to its route: its origin, its rate, its credentials."""

import ipaddress
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from otel_zernel.authentication import ServerAuthenticator, Unauthenticated
from otel_zernel.runtime.threads import run_in_thread
from otel_zernel_extensions.api.origins import Origins
from otel_zernel_extensions.api.rates import Rates
from otel_zernel_libraries.serving.access import is_local, joined_headers
from otel_zernel_libraries.serving.api.answers import ApiError, query_of
from otel_zernel_libraries.serving.api.routes import Route

_TABLES: Final = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))


def user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The uid of the client's end of an open connection. None if it is unknown. Blocks.

    The kernel lists every socket of a network namespace with the user of the process that has made it (proc(5)).
    """
    ends = [f" {local} {remote} " for local, remote in zip(_ends(*client), _ends(*server), strict=True)]
    for table in _TABLES:
        try:
            text = table.read_text("ascii")
        except OSError:
            continue
        for end in ends:
            if (at := text.find(end)) >= 0:
                return _uid(text[at:].partition("\n")[0].split())
    return None


def _uid(fields: list[str]) -> int | None:
    """`fields` begins with the local address. A socket that its process has closed has no inode, and uid 0."""
    uid, inode = int(fields[6]), int(fields[8])
    return uid if inode else None


def _ends(host: str, port: int) -> Iterator[str]:
    """An end of a connection as in the two tables, for IPv4 also as the IPv6 address that stands for it."""
    address = ipaddress.ip_address(host)
    plain = address if isinstance(address, ipaddress.IPv4Address) else address.ipv4_mapped
    if plain:
        yield f"{_words(plain.packed)}:{port:04X}"
        address = ipaddress.IPv6Address(f"::ffff:{plain}")
    yield f"{_words(address.packed)}:{port:04X}"


def _words(address: bytes) -> str:
    """Words of 32 bits, each a number in the byte order of the machine."""
    words = (address[at : at + 4] for at in range(0, len(address), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


_OF_PROXIES: Final = frozenset({b"forwarded", b"via", b"x-real-ip"})
"""Headers that a proxy adds, besides those that begin with `x-forwarded-`."""


class Admission:
    """Refuses requests before their bodies are read."""

    def __init__(
        self,
        origins: Origins,
        rates: Rates | None,
        authenticator: ServerAuthenticator | None,
        parameters: Iterable[str] = (),
        *,
        any_user: bool = False,
    ) -> None:
        """`parameters` are those of the query that the authenticator sees as headers.

        `any_user` lets every user of this machine use the routes that need credentials.
        """
        self._origins = origins
        self._rates = rates
        self._authenticator = authenticator
        self._parameters = (*parameters,)
        self._any_user = any_user

    async def admit(self, scope: Any) -> None:
        """Raises `ApiError` if the request must not be answered."""
        headers = joined_headers(scope["headers"])
        self._origins.check(scope["type"], scope.get("method", "GET"), headers)
        wait = self._rates.wait(client_of(scope)) if self._rates else 0
        if wait:
            raise ApiError(429, f"too many requests; try again in {wait} s", ((b"retry-after", str(wait).encode()),))
        if self._authenticator:
            await self._authenticate(self._authenticator, scope, headers)

    async def permit(self, route: Route, scope: Any) -> None:
        """Raises `ApiError` if only clients with credentials may use the route, and this one needs none."""
        if not route.needs_token or self._authenticator:
            return
        if not _is_here(scope):
            raise ApiError(
                403, "other machines may use this only with credentials; set auth of the api extension, or ask locally"
            )
        if self._origins.is_foreign(joined_headers(scope["headers"])):
            raise ApiError(
                403, "pages of other origins may use this only with credentials; set auth of the api extension"
            )
        if not self._any_user:
            await _check_user(scope)

    async def _authenticate(self, authenticator: ServerAuthenticator, scope: Any, headers: Any) -> None:
        if self._parameters:
            query = query_of(scope)
            headers = {name.lower(): query[name] for name in self._parameters if name in query} | dict(headers)
        try:
            await authenticator.authenticate(headers)
        except Unauthenticated as refused:
            challenge = authenticator.challenge.encode("latin-1", "replace")
            fields = ((b"www-authenticate", challenge),) if challenge else ()
            raise ApiError(401, str(refused), fields) from refused


def client_of(scope: Any) -> str:
    """The address of the client, without the port."""
    return str(scope["client"][0]) if scope.get("client") else ""


async def _check_user(scope: Any) -> None:
    """Raises `ApiError` unless the client runs as the collector's user, or as root, who can do everything anyway."""
    uid = await run_in_thread(lambda: user_of(scope["client"], scope["server"]))
    if uid in (0, os.geteuid()):
        return
    reason = "other users of this machine may use this only with credentials"
    if uid is None:
        reason = "the user of this connection is unknown"
    raise ApiError(
        403, f"{reason}; set auth of the api extension, or its allow_local_users if you trust all users here"
    )


def _is_here(scope: Any) -> bool:
    """Whether the request comes from this machine. A proxy's is of another one, unless it hides that."""
    names = [name for name, _ in scope["headers"]]
    by_proxy = any(name in _OF_PROXIES or name.startswith(b"x-forwarded-") for name in names)
    return is_local(client_of(scope)) and not by_proxy
