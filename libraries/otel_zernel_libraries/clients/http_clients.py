"""The HTTP client of an exporter, which a change of its TLS files replaces."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import TYPE_CHECKING

from otel_zernel.errors import Permanent

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    from httpx import AsyncClient


class HttpClients:
    """The client for new requests, and replaced ones until their requests have ended."""

    def __init__(self, connect: Callable[[SSLContext], "AsyncClient"]) -> None:
        self._connect = connect
        self._newest: AsyncClient | None = None
        self._requests: Counter[AsyncClient] = Counter()
        """Running requests of each client."""

    async def renew(self, security: SSLContext) -> None:
        """The next requests use new connections with these certificates."""
        former, self._newest = self._newest, self._connect(security)
        if former:
            await self._close_if_unused(former)

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator["AsyncClient"]:
        """The newest client, which stays open meanwhile. Raises `Permanent` after `close`."""
        client = self._newest
        if client is None:
            raise Permanent("the exporter is not open")
        self._requests[client] += 1
        try:
            yield client
        finally:
            self._requests[client] -= 1
            await self._close_if_unused(client)

    async def close(self) -> None:
        """Closes every connection. Safe to call twice."""
        clients = {*self._requests, *filter(None, (self._newest,))}
        self._newest = None
        self._requests.clear()
        for client in clients:
            await client.aclose()

    async def _close_if_unused(self, client: "AsyncClient") -> None:
        if not self._requests[client]:
            del self._requests[client]
            if client is not self._newest:
                await client.aclose()
