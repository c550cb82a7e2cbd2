"""The service `grpc.health.v1.Health`, by which load balancers see that the receiver runs.

https://github.com/grpc/grpc-proto/blob/master/grpc/health/v1/health.proto. The two messages are small enough to be read
and written by hand.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc
from grpc.aio import ServicerContext

from otel_zernel_receivers.otlp.fields import first_string

NAME: Final = "grpc.health.v1.Health"
_STATUS: Final = b"\x08"
"""Field 1, a varint."""
SERVING: Final = _STATUS + b"\x01"
NOT_SERVING: Final = _STATUS + b"\x02"
_SERVICE_UNKNOWN: Final = _STATUS + b"\x03"


class HealthService:
    """Answers `SERVING` for the server (the empty name) and each of its services, until it stops."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = {"", *services}
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """From now on the answer is `NOT_SERVING`."""
        self._stopping.set()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """The handlers of the methods, by path."""
        return {
            f"/{NAME}/Check": grpc.unary_unary_rpc_method_handler(self._check),
            f"/{NAME}/Watch": grpc.unary_stream_rpc_method_handler(self._watch),
        }

    async def _check(self, request: bytes, context: "ServicerContext[Any, Any]") -> bytes:
        service = first_string(request, 1)
        if service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {service:.100}")
        return self._status

    async def _watch(self, request: bytes, _: "ServicerContext[Any, Any]") -> AsyncIterator[bytes]:
        if first_string(request, 1) not in self._services:
            yield _SERVICE_UNKNOWN
        else:
            yield self._status
        await self._stopping.wait()
        yield NOT_SERVING

    @property
    def _status(self) -> bytes:
        return NOT_SERVING if self._stopping.is_set() else SERVING
