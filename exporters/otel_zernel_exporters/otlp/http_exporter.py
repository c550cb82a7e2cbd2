"""The exporter for OTLP over HTTP, in protobuf or JSON."""

import asyncio
import gzip
import os
import socket
import zlib
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar, DefaultCookiePolicy
from ssl import SSLContext, SSLError
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import zstandard

from otel_zernel import __version__
from otel_zernel.batch import SIGNALS, Batch
from otel_zernel.client.addresses import Addresses, Resolve, is_address, resolve
from otel_zernel.client.causes import Failures, explained
from otel_zernel.client.credentials import Credentials
from otel_zernel.client.proxies import advice as proxy_advice
from otel_zernel.client.proxies import http_proxy
from otel_zernel.client.tls import Pem, TlsFiles, client_context
from otel_zernel.component import Context
from otel_zernel.errors import CannotStart, Permanent, Retryable
from otel_zernel.text import shown_url, without_query
from otel_zernel_exporters.otlp.answers.http_answer import CONTENT_TYPES, HttpAnswer, hide_location
from otel_zernel_exporters.otlp.config import OtlpHttpConfig
from otel_zernel_exporters.otlp.connections.clients import HttpClients
from otel_zernel_exporters.otlp.converting import ConvertingExporter
from otel_zernel_exporters.otlp.signals import OtlpSignal, count_partial_success, signals_of

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    import httpx

_MIB = 1 << 20
_CONNECT_TIMEOUT = 3.0
"""Seconds for a connection if the host has another address to try."""

# The fastest levels: on OTLP, gzip's default takes 2.6 times as long as its level 1 and saves another 9 %.
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1, mtime=0),
    "zstd": lambda body: zstandard.ZstdCompressor(level=1).compress(body),
    "deflate": lambda body: zlib.compress(body, 1),
    "none": lambda body: body,
}


class OtlpHttpExporter(ConvertingExporter):
    """Sends OTLP over HTTP, in protobuf or JSON: one request for each signal of a batch."""

    Config = OtlpHttpConfig
    stability = "beta"
    delivery = "remote"
    config: OtlpHttpConfig

    @classmethod
    def advice(cls, config: OtlpHttpConfig) -> Iterator[tuple[str, str]]:
        path = urlsplit(config.endpoint).path.rstrip("/")
        for signal in SIGNALS:
            if path.endswith(f"/v1/{signal}"):
                doubled = f"/v1/{signal} is appended to it once more"
                yield "endpoint", f"{doubled}; remove it from the URL, or set {signal}_endpoint in place of endpoint"

    def __init__(self, config: OtlpHttpConfig, context: Context, resolve: Resolve = resolve) -> None:
        super().__init__(config, context)
        self._setting = f"{context.path}::tls"
        self._tls = TlsFiles(config.tls, context)
        self._credentials = Credentials(config.auth, context)
        self._resolve = resolve
        self._addresses: dict[str, Addresses] = {}
        """By URL, for hosts that are names. Empty if a proxy connects to them."""
        self._fixed_headers = self._headers()
        self._clients = HttpClients(self._connect)

    async def __aenter__(self) -> Self:
        self._credentials.open(unprotected=self.config.is_unprotected)
        await self._clients.renew(await self._security(await self._tls.read()))
        if not getproxies_environment().keys() & {"http", "https", "all"}:
            self._addresses = {url: found for url in self._urls() if (found := self._addresses_of(url))}
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._clients.close()

    async def export(self, batch: Batch) -> None:
        if pem := await self._tls.changed():
            await self._reload(pem)
        for signal in signals_of(batch):
            await self._send(signal, batch)

    def _connect(self, security: SSLContext) -> "httpx.AsyncClient":
        import httpx

        return httpx.AsyncClient(
            headers=self._fixed_headers,
            verify=security,
            timeout=httpx.Timeout(None),  # the delivery applies the timeout
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=100),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # a server could fill the memory with cookies
            event_hooks={"response": [hide_location]},
            trust_env=True,  # proxies from HTTPS_PROXY, HTTP_PROXY and NO_PROXY
        )

    async def _security(self, pem: Pem) -> SSLContext:
        return await asyncio.to_thread(client_context, pem, self.config.tls, self._setting)

    async def _reload(self, pem: Pem) -> None:
        """The next requests use new connections. They present the new certificate and trust the new authorities only.

        Running requests finish on the old ones.
        """
        try:
            await self._clients.renew(await self._security(pem))
        except (CannotStart, OSError) as error:
            self.context.logger.warning("Cannot load the changed TLS files, the old ones stay in use: %s", error)

    def _urls(self) -> set[str]:
        return {url for signal in SIGNALS if (url := self.config.url(signal))}

    def _addresses_of(self, text: str) -> Addresses | None:
        import httpx

        url = httpx.URL(text)
        host, port = url.raw_host.decode(), url.port or {"http": 80, "https": 443}[url.scheme]
        return None if is_address(host) else Addresses(host, port, self.context.clock, self._resolve)

    def _headers(self) -> dict[str, str]:
        headers = {"user-agent": f"otel-zernel/{__version__}"}
        headers |= {name.lower(): value.get_secret_value() for name, value in self.config.headers.items()}
        headers["content-type"] = CONTENT_TYPES[self.config.encoding]
        headers["accept-encoding"] = "identity"  # responses are short, and read without decoding
        if self.config.compression != "none":
            headers["content-encoding"] = self.config.compression
        return headers

    async def _send(self, signal: OtlpSignal, batch: Batch) -> None:
        url = self.config.url(signal.name)
        if not url:
            raise Permanent(f"no endpoint for {signal.name}: set endpoint or {signal.name}_endpoint")
        body = await self._body(signal, batch)
        answer = await self._post(url, body)
        if not answer.is_success:
            raise answer.failure(url, self.context.clock.time_ns(), self._credentials.advice, http_proxy(url))
        if error := answer.no_otlp(url, http_proxy(url)):
            raise error
        if response := answer.response(signal, self.context):
            count_partial_success(response, signal, batch, self.context)

    async def _post(self, url: str, body: bytes) -> HttpAnswer:
        """Posts to the next address of the host; to another one if no connection is possible. Raises `Retryable`."""
        import httpx

        addresses = self._addresses.get(url)
        try:
            places = await addresses.in_turn() if addresses else [None]
        except OSError as error:
            words = f"cannot resolve the host: {error.strerror}"
            raise Retryable(f"{shown_url(url)}: {explained(words, 'http', plaintext=False)}") from error
        failures = Failures()
        for place in places:
            try:
                return await self._post_to(place, url, body, _CONNECT_TIMEOUT if len(places) > 1 else None)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failures.add(place, _reason(error, url), error)
                if addresses and place:
                    addresses.fail(place)
            except httpx.TransportError as error:
                failures = Failures()
                failures.add(place, _reason(error, url), error)
                break
        raise self._no_answer(url, failures) from failures.error

    def _no_answer(self, url: str, failures: "Failures") -> Retryable:
        proxy = http_proxy(url)
        words = failures.explained("http", plaintext=url.startswith("http://"), proxied=proxy is not None)
        return Retryable(f"no answer from {shown_url(url)}: {words}{proxy_advice(proxy)}")

    async def _post_to(self, place: str | None, url: str, body: bytes, connect_timeout: float | None) -> HttpAnswer:
        """Posts to one address of the host; without one, httpx resolves the host. Raises `httpx.TransportError`."""
        import httpx

        target = httpx.URL(url)
        headers, name = dict(self._credentials.headers()), self.config.tls.server_name_override
        if place:
            headers.setdefault("host", self._fixed_headers.get("host", target.netloc.decode()))
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
            return await HttpAnswer.receive(response)

    async def _body(self, signal: OtlpSignal, batch: Batch) -> bytes:
        slow = self.config.encoding == "json" or len(signal.encode(batch)) > _MIB
        return await asyncio.to_thread(self._encode, signal, batch) if slow else self._encode(signal, batch)

    def _encode(self, signal: OtlpSignal, batch: Batch) -> bytes:
        encode = signal.encode_json if self.config.encoding == "json" else signal.encode
        return _COMPRESS[self.config.compression](encode(batch))


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
