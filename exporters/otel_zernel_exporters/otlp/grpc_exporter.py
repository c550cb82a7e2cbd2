"""The exporter for OTLP over gRPC."""

from collections.abc import Mapping, Sequence
from functools import partial
from os import environ
from typing import TYPE_CHECKING, Any, Self

from otel_zernel.batch import ALL_SIGNALS, Batch
from otel_zernel.component import Context
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.text import shown_url
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig
from otel_zernel_exporters.otlp.connections.channels import Channels, is_stuck, is_too_long, is_unconnected
from otel_zernel_exporters.otlp.signals import OtlpSignal, read_response, signals_of
from otel_zernel_exporters.otlp.unwanted import UnwantedSignals
from otel_zernel_libraries.clients.addresses import Resolve, resolve
from otel_zernel_libraries.clients.causes import Failures, explained, without_noise
from otel_zernel_libraries.clients.channel import security_of
from otel_zernel_libraries.clients.credentials import Credentials
from otel_zernel_libraries.clients.proxies import advice as proxy_advice
from otel_zernel_libraries.clients.proxies import grpc_proxy
from otel_zernel_libraries.clients.tls import TlsFiles
from otel_zernel_libraries.clients.waits import retry_info
from otel_zernel_libraries.clients.web_answers import refuses_compression
from otel_zernel_libraries.histograms.temporality import ConvertingExporter, settled_bounds, totals_in
from otel_zernel_libraries.prometheus.histograms import fixed_bounds

if TYPE_CHECKING:  # importing gRPC takes 27 MB, and validation does not need it
    from grpc.aio import AioRpcError, Channel

# https://opentelemetry.io/docs/specs/otlp/#failures; RESOURCE_EXHAUSTED too, if the server sends RetryInfo.
_RETRYABLE = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_UNAUTHENTICATED = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})


class OtlpGrpcExporter(ConvertingExporter):
    """Sends OTLP over gRPC: one request for each signal of a batch."""

    Config = OtlpGrpcConfig
    stability = "beta"
    signals = ALL_SIGNALS
    delivery = "remote"
    in_order = True
    config: OtlpGrpcConfig

    def __init__(self, config: OtlpGrpcConfig, context: Context, resolve: Resolve = resolve) -> None:
        super().__init__(config, context)
        self._bounds = settled_bounds(config.moving_bounds, fixed_bounds, config.conversion, context)
        self._totals = totals_in(config.temporality, config.conversion, context)
        self._tls = None if config.plaintext else TlsFiles(config.tls, context)
        self._credentials = Credentials(config.auth, context)
        self._metadata = {name.lower(): value.get_secret_value() for name, value in config.headers.items()}
        self._resolve = resolve
        self._channels: Channels | None = None
        self.signals = frozenset(config.signals)
        self._unwanted = UnwantedSignals(context, self.signals, lambda left: f"set signals: [{', '.join(left)}]")

    async def __aenter__(self) -> Self:
        self._credentials.open(unprotected=self.config.is_unprotected)
        self._channels = Channels(self.config, self.context.clock, self._resolve)
        if self._tls:
            self._channels.secure(security_of(await self._tls.read()))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._channels:
            await self._channels.close()
            self._channels = None

    async def export(self, batch: Batch) -> None:
        if self._channels is None:
            raise Permanent("the exporter is not open")
        if self._tls and (pem := await self._tls.changed()):
            self._channels.secure(security_of(pem))
        for signal in signals_of(batch):
            await self._send(signal, batch, self._channels)

    async def _send(self, signal: OtlpSignal, batch: Batch, channels: Channels) -> None:
        """Sends to the next address of the endpoint; to another one if no connection is possible."""
        from grpc.aio import AioRpcError

        self._unwanted.check(signal, batch)
        failures, failed = Failures(), None
        for target in await self._targets(channels):
            channel = channels.get(target)
            try:
                await self._call(channel, signal, batch)
            except AioRpcError as error:
                failed = error
                if is_stuck(channel, error):
                    channels.discard(target, channel)
                if not is_unconnected(channel, error):
                    failures = Failures()
                failures.add(_address(target), without_noise((error.details() or "")[:500]), error)
                if not is_unconnected(channel, error):
                    break
                channels.fail(target)
            else:
                self._unwanted.accepted(signal)
                return
        if failed:
            failure = self._failure(failed, failures)
            if _lacks_the_service(failed):
                failure = await self._unwanted.judged(signal, failure, partial(self._takes, channel))
            raise failure from failed

    async def _takes(self, channel: "Channel", signal: OtlpSignal) -> bool:
        """Whether the server takes an empty request of a signal."""
        from grpc.aio import AioRpcError

        try:
            await self._call(channel, signal, Batch())
        except AioRpcError:
            return False
        return True

    async def _call(self, channel: "Channel", signal: OtlpSignal, batch: Batch) -> None:
        """One request. Raises `AioRpcError`."""
        from grpc.aio import AioRpcError

        metadata = _metadata({**self._metadata, **self._credentials.headers()})
        call = channel.unary_unary(signal.method, None, None)
        try:
            answer = await call(batch.bytes_of(signal.name), timeout=self.config.timeout or None, metadata=metadata)
        except AioRpcError as error:
            if not is_too_long(error):
                raise
            self.context.logger.warning("The server accepted the %s, but its response is too long", signal.items)
        else:
            read_response(answer, signal, batch, self.context)

    async def _targets(self, channels: Channels) -> Sequence[str]:
        try:
            return await channels.in_turn()
        except OSError as error:
            words = f"cannot resolve the host: {error.strerror}"
            raise Retryable(f"{self.config.endpoint}: {explained(words, 'grpc', plaintext=False)}") from error

    def _failure(self, error: "AioRpcError", failures: Failures) -> Retryable | Permanent:
        code, details = error.code().name, (error.details() or "")[:500]
        place = shown_url(self.config.endpoint) if "://" in self.config.endpoint else self.config.endpoint
        host = self.config.host_and_port
        proxy = grpc_proxy(host[0], environ) if host and code == "UNAVAILABLE" else None
        words = failures.explained("grpc", plaintext=self.config.plaintext, proxied=proxy is not None)
        sentence = f"{place}: {code}: {words}{self._advice(code, details)}{proxy_advice(proxy)}"
        after = _retry_after(error)
        if code in _RETRYABLE or (code == "RESOURCE_EXHAUSTED" and after is not None):
            return Retryable(sentence, after)
        if code in self.config.retry_on_failure.permanent_codes:
            return Permanent(sentence)
        return Correctable(sentence, code, after)

    def _advice(self, code: str, details: str) -> str:
        if code == "RESOURCE_EXHAUSTED":
            return " (if the request was too large, set sending_queue::batch::max_size)"
        if code == "UNIMPLEMENTED" and refuses_compression(details):
            return f"; the server does not take compression: {self.config.compression}; set compression: gzip or none"
        if code == "UNIMPLEMENTED" and "http2 header" not in details:
            return " (the server speaks gRPC, but not OTLP for this signal; correct the endpoint)"
        return self._credentials.advice if code in _UNAUTHENTICATED else ""


def _lacks_the_service(error: "AioRpcError") -> bool:
    """Whether a gRPC server answers that it does not have the method, and not that it lacks the compression."""
    details = error.details() or ""
    return error.code().name == "UNIMPLEMENTED" and "http2 header" not in details and not refuses_compression(details)


def _address(target: str) -> str:
    """The address in a target of gRPC: `127.0.0.1` of `ipv4:127.0.0.1:4317`."""
    scheme, _, place = target.partition(":")
    return place.rpartition(":")[0] if scheme in ("ipv4", "ipv6") else target


def _metadata(headers: Mapping[str, str]) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((name, value.encode() if name.endswith("-bin") else value) for name, value in headers.items())


def _retry_after(error: "AioRpcError") -> float | None:
    """Seconds of the error's `RetryInfo`; None without one."""
    metadata: Any = error.trailing_metadata()  # the stubs declare the tuple of the synchronous API
    return retry_info(metadata.get("grpc-status-details-bin", b""))
