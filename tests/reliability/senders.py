"""Senders of OTLP metrics, as in an SDK: one connection each, and an answer for each request."""

import http.client
from typing import Protocol

import grpc

PATIENCE = 60.0
"""Seconds to wait for an answer."""
_EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_HEADERS = {"content-type": "application/x-protobuf"}


class Sender(Protocol):
    """A connection to a collector."""

    def send(self, request: bytes) -> bool:
        """Whether a request was acknowledged. False if the collector refuses it, ends, or does not listen yet."""

    def close(self) -> None:
        """Closes the connection."""


class GrpcSender:
    """A sender over gRPC."""

    def __init__(self, port: int) -> None:
        backoff = [(f"grpc.{name}_reconnect_backoff_ms", 20) for name in ("initial", "min", "max")]
        self._channel = grpc.insecure_channel(
            f"127.0.0.1:{port}", [*backoff, ("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
        )
        self._export = self._channel.unary_unary(_EXPORT, None, None)

    def send(self, request: bytes) -> bool:
        try:
            self._export(request, timeout=PATIENCE)
        except grpc.RpcError:
            return False
        return True

    def close(self) -> None:
        self._channel.close()


class HttpSender:
    """A sender over HTTP."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def send(self, request: bytes) -> bool:
        try:
            self._connection.request("POST", "/v1/metrics", request, _HEADERS)
            response = self._connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()  # the next request connects again
            return False
        return response.status == http.client.OK

    def close(self) -> None:
        self._connection.close()
