"""The exporter for OTLP over gRPC."""

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from otel_zernel import __version__
from otel_zernel.batch import Batch
from otel_zernel.component import Context, Exporter
from otel_zernel.errors import Permanent, Retryable
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig
from otel_zernel_exporters.otlp.signals import OtlpSignal, count_partial_success, signals_of
from otel_zernel_exporters.otlp.tls import Pem, TlsFiles

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc.aio import AioRpcError, Channel

# https://opentelemetry.io/docs/specs/otlp/#failures; RESOURCE_EXHAUSTED too, if the server sends RetryInfo.
_RETRYABLE = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})

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
        self._metadata = tuple(_metadata(name, value.get_secret_value()) for name, value in config.headers.items())
        self._channel: Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._channel = _open(self.config, await self._tls.read() if self._tls else None)
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
            self._reconnect(pem)
        for signal in signals_of(batch):
            count_partial_success(await self._send(signal, batch), signal, batch, self.context)

    def _reconnect(self, pem: Pem) -> None:
        old, self._channel = self._channel, _open(self.config, pem)
        if old:
            closing = asyncio.create_task(old.close(grace=self.config.timeout or _LONGEST_GRACE))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def _send(self, signal: OtlpSignal, batch: Batch) -> Any:
        from grpc.aio import AioRpcError

        if self._channel is None:
            raise Permanent("the exporter is not open")
        call = self._channel.unary_unary(signal.method, None, signal.response.FromString)
        try:
            return await call(signal.encode(batch), timeout=self.config.timeout or None, metadata=self._metadata)
        except AioRpcError as error:
            raise _failure(error, self.config.endpoint) from error


def _metadata(name: str, value: str) -> tuple[str, str | bytes]:
    return name.lower(), value.encode() if name.lower().endswith("-bin") else value


def _open(config: OtlpGrpcConfig, pem: Pem | None) -> "Channel":
    import grpc

    compression = {
        "gzip": grpc.Compression.Gzip,
        "deflate": grpc.Compression.Deflate,
        "none": grpc.Compression.NoCompression,
    }[config.compression]
    if pem is None:
        return grpc.aio.insecure_channel(config.target, _options(config), compression)
    credentials = grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)
    return grpc.aio.secure_channel(config.target, credentials, _options(config), compression)


def _options(config: OtlpGrpcConfig) -> list[tuple[str, str | int]]:
    """https://grpc.github.io/grpc/core/group__grpc__arg__keys.html"""
    options: list[tuple[str, str | int]] = [
        ("grpc.primary_user_agent", f"otel-zernel/{__version__}"),
        # retry_on_failure decides how long to wait: the channel must not wait longer than one attempt.
        ("grpc.max_reconnect_backoff_ms", 5000),
    ]
    if config.tls.server_name_override:
        options.append(("grpc.ssl_target_name_override", config.tls.server_name_override))
    if keepalive := config.keepalive:
        options += [
            ("grpc.keepalive_time_ms", round(keepalive.time * 1000)),
            ("grpc.keepalive_timeout_ms", round(keepalive.timeout * 1000)),
            ("grpc.keepalive_permit_without_calls", int(keepalive.permit_without_stream)),
            ("grpc.http2.max_pings_without_data", 0),
        ]
    return options


def _failure(error: "AioRpcError", endpoint: str) -> Retryable | Permanent:
    code, details = error.code().name, (error.details() or "")[:500]
    sentence = f"{endpoint}: {code}: {details}{_advice(code, details)}"
    after = _retry_after(error)
    if code in _RETRYABLE or (code == "RESOURCE_EXHAUSTED" and after is not None):
        return Retryable(sentence, after)
    return Permanent(sentence)


def _advice(code: str, details: str) -> str:
    if "WRONG_VERSION_NUMBER" in details:
        return " (does the server expect plaintext? set tls::insecure: true)"
    if code == "RESOURCE_EXHAUSTED":
        return " (if the request was too large, set sending_queue::batch::max_size)"
    return ""


def _retry_after(error: "AioRpcError") -> float | None:
    """Seconds of the error's `RetryInfo`; None without one."""
    metadata: Any = error.trailing_metadata()  # the stubs declare the tuple of the synchronous API
    info = RetryInfo()
    with suppress(DecodeError):
        status = Status.FromString(metadata.get("grpc-status-details-bin", b""))
        if any(detail.Unpack(info) for detail in status.details):
            return float(info.retry_delay.ToNanoseconds()) / 1e9
    return None
