"""The exporter of each transport, and servers that give chosen answers."""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from starlette.responses import Response

from otel_zernel.component import Context
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpGrpcExporter, OtlpHttpExporter
from otel_zernel_libraries.clients.addresses import Resolve, resolve
from tests.exporters.otlp.peers import GrpcAnswer, GrpcSink, HttpSink

PROTO: Final = "application/x-protobuf"
EXPORTERS: Final[dict[str, Any]] = {"grpc": OtlpGrpcExporter, "http": OtlpHttpExporter}
both: Final = pytest.mark.parametrize("transport", EXPORTERS)
both_configs: Final = pytest.mark.parametrize("config", [exporter.Config for exporter in EXPORTERS.values()])


def context(transport: str) -> Context:
    return make_context("exporters", f"otlp_{transport}")


def exporter_of(
    transport: str, endpoint: str, own: Context | None = None, names: Resolve = resolve, **options: Any
) -> Any:
    """An exporter that is not entered yet. `names` resolves the host of its endpoint."""
    kind = EXPORTERS[transport]
    return kind(kind.Config.model_validate({"endpoint": endpoint, **options}), own or context(transport), names)


@asynccontextmanager
async def exporting(sink: GrpcSink | HttpSink, own: Context | None = None, **options: Any) -> AsyncIterator[Any]:
    """The exporter of a sink that serves."""
    async with sink.serve() as place:
        transport, endpoint = ("http", place) if isinstance(place, str) else ("grpc", f"http://localhost:{place}")
        async with exporter_of(transport, endpoint, own, **options) as exporter:
            yield exporter


def answering(*answers: Response) -> HttpSink:
    return HttpSink(answers=deque(answers))


def answering_grpc(*answers: GrpcAnswer) -> GrpcSink:
    return GrpcSink(answers=deque(answers))


def failing(code: str, *, words: str = "says the server", retry_after: float | None = None) -> GrpcAnswer:
    """A gRPC answer with a status, and seconds to wait."""
    if retry_after is None:
        return aborting(code, words)
    info = AnyMessage()
    info.Pack(RetryInfo(retry_delay=Duration(seconds=int(retry_after), nanos=int(retry_after % 1 * 1e9))))
    status = Status(details=[AnyMessage(type_url="of/somebody", value=b"\xff"), info])
    return aborting(code, words, status.SerializeToString())


def aborting(code: str, words: str, details: bytes = b"") -> Callable[[Any], Awaitable[None]]:
    """A gRPC answer with a status and its encoded details."""

    async def answer(call: Any) -> None:
        call.set_trailing_metadata((("grpc-status-details-bin", details),) if details else ())
        await call.abort(grpc.StatusCode[code], words)

    return answer
