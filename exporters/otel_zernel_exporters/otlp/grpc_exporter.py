"""The exporter for OTLP over gRPC."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import Permanent, Retryable
from otel_zernel_exporters.otlp.channel import RENEWAL, is_renewed, is_stuck, is_too_long, open_channel
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig
from otel_zernel_exporters.otlp.credentials import Credentials
from otel_zernel_exporters.otlp.signals import OtlpSignal, read_response, signals_of
from otel_zernel_exporters.otlp.tls import Pem, TlsFiles
from otel_zernel_exporters.otlp.waits import retry_info

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc import ChannelCredentials
    from grpc.aio import AioRpcError, Channel

# https://opentelemetry.io/docs/specs/otlp/#failures; RESOURCE_EXHAUSTED too, if the server sends RetryInfo.
_RETRYABLE = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_UNAUTHENTICATED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})

_LONGEST_GRACE = 3600.0
"""Seconds in which requests on a replaced channel must finish, if `timeout` is 0."""


class OtlpGrpcExporter(Exporter):
    """Sends OTLP over gRPC: one request for each signal of a batch."""

    Config = OtlpGrpcConfig
    stability = "beta"
    delivery = "remote"
    config: OtlpGrpcConfig

    def __init__(self, config: OtlpGrpcConfig, context: Context) -> None:
        super().__init__(config, context)
        self._tls = None if config.plaintext else TlsFiles(config.tls, context)
        self._credentials = Credentials(config.auth, context)
        self._metadata = {name.lower(): value.get_secret_value() for name, value in config.headers.items()}
        self._security: ChannelCredentials | None = None
        """TLS of the channels. They share their connections as long as it is the same."""
        self._channel: Channel | None = None
        self._opened_at = 0.0
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._credentials.open()
        if self._tls:
            self._security = _security(await self._tls.read())
        self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.gather(*self._closing)
        if self._channel:
            await self._channel.close(grace=None)
            self._channel = None

    async def export(self, batch: Batch) -> None:
        if self._tls and (pem := await self._tls.changed()):
            self._security = _security(pem)
            self._reopen()
        elif is_renewed(self.config) and self.context.clock.monotonic() >= self._opened_at + RENEWAL:
            self._reopen()
        for signal in signals_of(batch):
            await self._send(signal, batch)

    def _open(self) -> None:
        self._channel = open_channel(self.config, self._security)
        self._opened_at = self.context.clock.monotonic()

    def _reopen(self) -> None:
        """Replaces the channel. Requests on the old one finish."""
        old = self._channel
        self._open()
        if old:
            closing = asyncio.create_task(old.close(grace=self.config.timeout or _LONGEST_GRACE))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _send(self, signal: OtlpSignal, batch: Batch) -> None:
        from grpc.aio import AioRpcError

        channel = self._channel
        if channel is None:
            raise Permanent("the exporter is not open")
        metadata = _metadata({**self._metadata, **self._credentials.headers()})
        call = channel.unary_unary(signal.method, None, None)
        try:
            answer = await call(signal.encode(batch), timeout=self.config.timeout or None, metadata=metadata)
        except AioRpcError as error:
            if is_too_long(error):
                self.context.logger.warning("The server accepted the %s, but its response is too long", signal.items)
                return
            if is_stuck(channel, error) and channel is self._channel:
                self._reopen()
            raise self._failure(error) from error
        read_response(answer, signal, batch, self.context)

    def _failure(self, error: "AioRpcError") -> Retryable | Permanent:
        code, details = error.code().name, (error.details() or "")[:500]
        sentence = f"{self.config.endpoint}: {code}: {details}{self._advice(code, details)}"
        after = _retry_after(error)
        if code in _RETRYABLE or (code == "RESOURCE_EXHAUSTED" and after is not None):
            return Retryable(sentence, after)
        return Permanent(sentence)

    def _advice(self, code: str, details: str) -> str:
        if "WRONG_VERSION_NUMBER" in details:
            return " (does the server expect plaintext? set tls::insecure: true)"
        if code == "RESOURCE_EXHAUSTED":
            return " (if the request was too large, set sending_queue::batch::max_size)"
        return self._credentials.advice if code in _UNAUTHENTICATED else ""


def _metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((name, value.encode() if name.endswith("-bin") else value) for name, value in headers.items())


def _security(pem: Pem) -> "ChannelCredentials":
    import grpc

    return grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)


def _retry_after(error: "AioRpcError") -> float | None:
    """Seconds of the error's `RetryInfo`; None without one."""
    metadata: Any = error.trailing_metadata()  # the stubs declare the tuple of the synchronous API
    return retry_info(metadata.get("grpc-status-details-bin", b""))
