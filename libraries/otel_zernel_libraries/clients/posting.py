"""Posts request bodies to a server over HTTP: its addresses in turn, changed certificates, credentials."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLContext, SSLError
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.request import getproxies_environment

from otel_zernel.authentication import AuthConfig
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, Permanent, Retryable
from otel_zernel.text import shown_url, without_query
from otel_zernel_libraries.clients.addresses import Addresses, Resolve, is_address, resolve
from otel_zernel_libraries.clients.causes import Failures, Transport, explained
from otel_zernel_libraries.clients.credentials import Credentials
from otel_zernel_libraries.clients.proxies import advice as proxy_advice
from otel_zernel_libraries.clients.proxies import http_proxy
from otel_zernel_libraries.clients.tls import Pem, TlsFiles, client_context
from otel_zernel_libraries.clients.tls_config import TlsConfig

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    import httpx


_LONGEST_BODY: Final = 64 * 1024
"""Bytes of the body of an answer."""


async def beginning_of(response: "httpx.Response") -> bytes:
    """The first 64 KiB of the body of an answer. The rest is not read."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) >= _LONGEST_BODY:
            break
    return bytes(body[:_LONGEST_BODY])


class HttpClients:
    """The client for new requests, and replaced ones until their requests have ended."""

    def __init__(self, connect: Callable[[SSLContext], "httpx.AsyncClient"]) -> None:
        self._connect = connect
        self._newest: httpx.AsyncClient | None = None
        self._requests: Counter[httpx.AsyncClient] = Counter()
        """Running requests of each client."""

    async def renew(self, security: SSLContext) -> None:
        """The next requests use new connections with these certificates."""
        former, self._newest = self._newest, self._connect(security)
        if former:
            await self._close_if_unused(former)

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator["httpx.AsyncClient"]:
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

    async def _close_if_unused(self, client: "httpx.AsyncClient") -> None:
        if not self._requests[client]:
            del self._requests[client]
            if client is not self._newest:
                await client.aclose()


_CONNECT_TIMEOUT = 3.0
"""Seconds for a connection if the host has another address to try."""

T = TypeVar("T")


class HttpPosting:
    """The connections of an exporter. Call `open` before the first request, and `close` after the last one."""

    def __init__(
        self,
        tls: TlsConfig,
        auth: AuthConfig | None,
        headers: Mapping[str, str],
        context: Context,
        resolve: Resolve = resolve,
        transport: Transport = "http",
    ) -> None:
        """`headers` are those of every request, with lower-case names. `transport` chooses the words of failures."""
        self._context = context
        self._config = tls
        self._setting = f"{context.path}::tls"
        self._tls = TlsFiles(tls, context)
        self._credentials = Credentials(auth, context)
        self._headers = headers
        self._resolve = resolve
        self._transport: Transport = transport
        self._addresses: dict[str, Addresses] = {}
        """By URL, for hosts that are names. Empty if a proxy connects to them."""
        self._clients = HttpClients(self._connect)

    async def open(self, urls: Iterable[str], *, unprotected: bool) -> None:
        """`unprotected`: others on the network can read the requests. Raises `CannotStart`."""
        self._credentials.open(unprotected=unprotected)
        await self._clients.renew(await self._security(await self._tls.read()))
        if not getproxies_environment().keys() & {"http", "https", "all"}:
            self._addresses = {url: addresses for url in urls if (addresses := self._addresses_of(url))}

    async def close(self) -> None:
        """Closes every connection. Safe without `open`, and to call twice."""
        await self._clients.close()

    async def renew(self) -> None:
        """Reads changed TLS files. Running requests finish on the old connections."""
        if pem := await self._tls.changed():
            try:
                await self._clients.renew(await self._security(pem))
            except (CannotStart, OSError) as error:
                self._context.logger.warning("Cannot load the changed TLS files, the old ones stay in use: %s", error)

    @property
    def advice(self) -> str:
        """The end of the message about a request that the server refused for its credentials."""
        return self._credentials.advice

    async def post(
        self,
        url: str,
        body: bytes,
        read: Callable[["httpx.Response"], Awaitable[T]],
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Posts to the next address of the host, or to another one if no connection is possible.

        Returns the result of `read`. `headers` are added to those of every request. Raises `Retryable` without an
        answer.
        """
        import httpx

        addresses = self._addresses.get(url)
        try:
            places = await addresses.in_turn() if addresses else [None]
        except OSError as error:
            words = f"cannot resolve the host: {error.strerror}"
            raise Retryable(f"{shown_url(url)}: {explained(words, self._transport, plaintext=False)}") from error
        failures = Failures()
        for place in places:
            try:
                limit = _CONNECT_TIMEOUT if len(places) > 1 else None
                return await self._post_to(place, url, body, read, headers or {}, limit)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failures.add(place, _reason(error, url), error)
                if addresses and place:
                    addresses.fail(place)
            except httpx.TransportError as error:
                failures = Failures()
                failures.add(place, _reason(error, url), error)
                break
        raise self._no_answer(url, failures) from failures.error

    def _connect(self, security: SSLContext) -> "httpx.AsyncClient":
        import httpx

        return httpx.AsyncClient(
            headers=dict(self._headers),
            verify=security,
            timeout=httpx.Timeout(None),  # the delivery applies the timeout
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # a server could fill the memory with cookies
            event_hooks={"response": [_hide_location]},
            trust_env=True,  # proxies from HTTPS_PROXY, HTTP_PROXY and NO_PROXY
        )

    async def _security(self, pem: Pem) -> SSLContext:
        return await asyncio.to_thread(client_context, pem, self._config, self._setting)

    def _addresses_of(self, text: str) -> Addresses | None:
        import httpx

        url = httpx.URL(text)
        host, port = url.raw_host.decode(), url.port or {"http": 80, "https": 443}[url.scheme]
        return None if is_address(host) else Addresses(host, port, self._context.clock, self._resolve)

    def _no_answer(self, url: str, failures: Failures) -> Retryable:
        proxy = http_proxy(url)
        words = failures.explained(self._transport, plaintext=url.startswith("http://"), proxied=proxy is not None)
        return Retryable(f"no answer from {shown_url(url)}: {words}{proxy_advice(proxy)}")

    async def _post_to(
        self,
        place: str | None,
        url: str,
        body: bytes,
        read: Callable[["httpx.Response"], Awaitable[T]],
        more: Mapping[str, str],
        connect_timeout: float | None,
    ) -> T:
        """Posts to one address of the host; without one, httpx resolves the host. Raises `httpx.TransportError`."""
        import httpx

        target = httpx.URL(url)
        headers, name = {**more, **self._credentials.headers()}, self._config.server_name_override
        if place:
            headers.setdefault("host", self._headers.get("host", target.netloc.decode()))
            name = name or target.raw_host.decode()
            target = target.copy_with(host=place)
        extensions = {"sni_hostname": name} if name else {}
        timeout = httpx.Timeout(None, connect=connect_timeout)
        async with (
            self._clients.in_use() as client,
            client.stream(
                "POST", target, content=body, headers=headers, extensions=extensions, timeout=timeout
            ) as response,
        ):
            return await read(response)


async def _hide_location(response: "httpx.Response") -> None:
    """Takes the location of a redirect out of the headers.

    httpx reads it even if it does not follow redirects, and raises an error of the connection if it is invalid.
    """
    response.extensions["location"] = response.headers.pop("location", "")


def _reason(error: Exception | None, url: str) -> str:
    """The words of the system for a failed connection (`Connection refused`), else those of httpx."""
    cause: BaseException | None = error
    while cause and (deeper := cause.__cause__ or cause.__context__):
        cause = deeper
    if isinstance(cause, socket.gaierror):
        return cause.strerror or "the name cannot be resolved"
    if isinstance(cause, OSError) and not isinstance(cause, SSLError) and cause.errno:
        return os.strerror(cause.errno)
    return without_query(str(error), url) or type(error).__name__
