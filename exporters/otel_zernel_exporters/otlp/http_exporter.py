"""The exporter for OTLP over HTTP, in protobuf or JSON."""

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from contextlib import suppress
from email.utils import parsedate_to_datetime
from ssl import SSLContext
from types import TracebackType
from typing import TYPE_CHECKING, Self

import zstandard
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import CannotStart, Permanent, Retryable
from otel_zernel_exporters.otlp.config import OtlpHttpConfig
from otel_zernel_exporters.otlp.signals import OtlpSignal, Response, count_partial_success, signals_of
from otel_zernel_exporters.otlp.tls import TlsFiles, client_context, load_certificate

if TYPE_CHECKING:  # importing httpx takes 100 ms, and validation does not need it
    import httpx

_MIB = 1 << 20
_LONGEST_ANSWER = 64 * 1024
"""Bytes of a response body that are read; the rest is ignored."""

_DAY = 86_400.0
_RETRYABLE = frozenset({429, 502, 503, 504})  # https://opentelemetry.io/docs/specs/otlp/#failures-1
_CONTENT_TYPES = {"proto": "application/x-protobuf", "json": "application/json"}

# The fastest levels: on OTLP, gzip's default takes 2.6 times as long as its level 1 and saves another 9 %.
_COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1, mtime=0),
    "zstd": lambda body: zstandard.ZstdCompressor(level=1).compress(body),
    "deflate": lambda body: zlib.compress(body, 1),
    "none": lambda body: body,
}


class OtlpHttpExporter(Exporter):
    """Sends OTLP over HTTP, in protobuf or JSON: one request for each signal of a batch."""

    Config = OtlpHttpConfig
    stability = "beta"
    delivery = "remote"
    config: OtlpHttpConfig

    def __init__(self, config: OtlpHttpConfig, context: Context) -> None:
        super().__init__(config, context)
        self._setting = f"{context.path}::tls"
        self._tls = TlsFiles(config.tls, context)
        self._ssl: SSLContext | None = None
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        import httpx

        await self._tls.read()
        self._ssl = await asyncio.to_thread(client_context, self.config.tls, self._setting)
        # The delivery applies the timeout. Proxies come from HTTPS_PROXY, HTTP_PROXY, NO_PROXY (trust_env).
        no_limit = httpx.Timeout(None)
        self._client = httpx.AsyncClient(headers=self._headers(), verify=self._ssl, timeout=no_limit, trust_env=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client:
            await self._client.aclose()
            self._client = None

    async def export(self, batch: Batch) -> None:
        if self._ssl and await self._tls.changed():
            await asyncio.to_thread(self._reload, self._ssl)
        for signal in signals_of(batch):
            await self._send(signal, batch)

    def _reload(self, context: SSLContext) -> None:
        """New connections present the new certificate and trust the new authorities; open ones do not change."""
        try:
            if self.config.tls.ca_file:
                context.load_verify_locations(self.config.tls.ca_file)
            load_certificate(context, self.config.tls, self._setting)
        except (CannotStart, OSError) as error:  # the files changed again after the check
            self.context.logger.warning("Cannot load the changed TLS files, the old ones stay in use: %s", error)

    def _headers(self) -> dict[str, str]:
        headers = {"user-agent": f"otel-zernel/{__version__}"}
        headers |= {name.lower(): value.get_secret_value() for name, value in self.config.headers.items()}
        headers["content-type"] = _CONTENT_TYPES[self.config.encoding]
        headers["accept-encoding"] = "identity"  # responses are short, and read without decoding
        if self.config.compression != "none":
            headers["content-encoding"] = self.config.compression
        return headers

    async def _send(self, signal: OtlpSignal, batch: Batch) -> None:
        import httpx

        url = self.config.url(signal.name)
        if not url or self._client is None:
            raise Permanent(f"no endpoint for {signal.name}: set endpoint or {signal.name}_endpoint")
        name = self.config.tls.server_name_override
        extensions = {"sni_hostname": name} if name else {}
        body = await self._body(signal, batch)
        try:
            async with self._client.stream("POST", url, content=body, extensions=extensions) as answer:
                text = await _read(answer)
        except httpx.TransportError as error:
            raise Retryable(f"{url}: {str(error) or type(error).__name__}{_advice(error)}") from error
        if not answer.is_success:
            raise self._failure(url, answer, text)
        if response := _decode(answer, text, signal):
            count_partial_success(response, signal, batch, self.context)

    async def _body(self, signal: OtlpSignal, batch: Batch) -> bytes:
        slow = self.config.encoding == "json" or len(signal.encode(batch)) > _MIB
        return await asyncio.to_thread(self._encode, signal, batch) if slow else self._encode(signal, batch)

    def _encode(self, signal: OtlpSignal, batch: Batch) -> bytes:
        encode = signal.encode_json if self.config.encoding == "json" else signal.encode
        return _COMPRESS[self.config.compression](encode(batch))

    def _failure(self, url: str, answer: "httpx.Response", text: bytes) -> Retryable | Permanent:
        sentence = f"{url}: {answer.status_code} {answer.reason_phrase}: {_message(answer, text)}".rstrip(": ")
        if answer.is_redirect:
            return Permanent(
                f"{sentence}; redirects are not followed; set the endpoint to {answer.headers['location']}"
            )
        if answer.status_code in _RETRYABLE:
            return Retryable(sentence, _retry_after(answer, self.context.clock.time_ns()))
        return Permanent(sentence)


async def _read(answer: "httpx.Response") -> bytes:
    body = b""
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) >= _LONGEST_ANSWER:
            break
    return body[:_LONGEST_ANSWER]


def _advice(error: Exception) -> str:
    return " (does the server expect plaintext? use http://)" if "WRONG_VERSION_NUMBER" in str(error) else ""


def _content_type(answer: "httpx.Response") -> str:
    return str(answer.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _decode(answer: "httpx.Response", text: bytes, signal: OtlpSignal) -> Response | None:
    """The OTLP response to a successful request; None for another body, which some proxies send."""
    with suppress(DecodeError, json_format.ParseError, ValueError):
        if _content_type(answer) == _CONTENT_TYPES["json"]:
            return json_format.Parse(text, signal.response(), ignore_unknown_fields=True)
        if _content_type(answer) == _CONTENT_TYPES["proto"]:
            return signal.response.FromString(text)
    return None


def _message(answer: "httpx.Response", text: bytes) -> str:
    """The error message of the server: that of its rpc Status, else the first 500 characters of the body."""
    message = text.decode(errors="replace")
    with suppress(DecodeError, ValueError, AttributeError):
        if _content_type(answer) == _CONTENT_TYPES["json"]:
            message = str(json.loads(text).get("message", message))
        if _content_type(answer) == _CONTENT_TYPES["proto"]:
            message = Status.FromString(text).message
    return " ".join(message.split())[:500]


def _retry_after(answer: "httpx.Response", now_ns: int) -> float | None:
    """Seconds of `Retry-After`, a number of seconds or a date (RFC 9110, 10.2.3); None without one."""
    value = str(answer.headers.get("retry-after", "")).strip()
    if value.isdecimal():
        return min(float(value), _DAY)
    with suppress(ValueError):
        return max(0.0, parsedate_to_datetime(value).timestamp() - now_ns / 1e9)
    return None
