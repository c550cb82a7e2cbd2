"""The gRPC exporter with a real gRPC server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)

from otel_zernel.component import Context
from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpGrpcExporter
from otel_zernel_exporters.otlp.config import OtlpGrpcConfig
from otel_zernel_libraries.clients.waits import LONGEST_WAIT
from tests.exporters.otlp.peers import GrpcSink, logs_batch, metrics_batch, profiles_batch, spans_batch

RETRYABLE = {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
PERMANENT = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
CORRECTABLE = {code.name for code in grpc.StatusCode} - RETRYABLE - PERMANENT - {"OK"}


def context() -> Context:
    return make_context("exporters", "otlp_grpc")


@asynccontextmanager
async def exporting(sink: GrpcSink, context: Context | None = None, **options: Any) -> AsyncIterator[OtlpGrpcExporter]:
    async with sink.serve() as port:
        config = OtlpGrpcConfig.model_validate({"endpoint": f"http://localhost:{port}", **options})
        async with OtlpGrpcExporter(config, context or make_context("exporters", "otlp_grpc")) as exporter:
            yield exporter


def failing(code: str, *, retry_after: float | None = None) -> Callable[[Any], Awaitable[None]]:
    async def answer(call: Any) -> None:
        if retry_after is not None:
            info = AnyMessage()
            info.Pack(RetryInfo(retry_delay=Duration(seconds=int(retry_after), nanos=int(retry_after % 1 * 1e9))))
            status = Status(details=[AnyMessage(type_url="of/somebody", value=b"\xff"), info]).SerializeToString()
            call.set_trailing_metadata((("grpc-status-details-bin", status),))
        await call.abort(grpc.StatusCode[code], "says the server")

    return answer


@pytest.mark.parametrize("compression", ["gzip", "deflate", "none"])
async def test_metrics_and_spans_arrive_unchanged(compression: str) -> None:
    sink = GrpcSink()
    async with exporting(sink, compression=compression) as exporter:
        await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    assert sink.requests == [metrics_batch().bytes_of("metrics"), spans_batch().bytes_of("traces")]


async def test_a_batch_of_both_signals_is_two_requests() -> None:
    sink = GrpcSink()
    both = metrics_batch()
    both.edit_spans().CopyFrom(spans_batch().spans)
    async with exporting(sink) as exporter:
        await exporter.export(both)
    assert sink.requests == [metrics_batch().bytes_of("metrics"), spans_batch().bytes_of("traces")]


async def test_headers_and_user_agent_are_sent() -> None:
    sink = GrpcSink()
    async with exporting(sink, headers={"Authorization": "Bearer x", "trace-bin": "\x20raw"}) as exporter:
        await exporter.export(metrics_batch())
    assert sink.metadata[0]["authorization"] == "Bearer x"
    assert sink.metadata[0]["trace-bin"] == b"\x20raw"
    assert str(sink.metadata[0]["user-agent"]).startswith("otel-zernel/")


@pytest.mark.parametrize("code", sorted(RETRYABLE))
async def test_a_temporary_failure_is_retryable(code: str) -> None:
    sink = GrpcSink()
    sink.answers.append(failing(code))
    async with exporting(sink) as exporter:
        with pytest.raises(Retryable, match=f"{code}: says the server") as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after is None


@pytest.mark.parametrize("code", sorted(PERMANENT))
async def test_a_failure_of_the_data_is_permanent(code: str) -> None:
    sink = GrpcSink()
    sink.answers.append(failing(code))
    async with exporting(sink) as exporter:
        with pytest.raises(Permanent, match=f"{code}: says the server"):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize("code", sorted(CORRECTABLE))
async def test_a_failure_that_somebody_can_correct_keeps_the_batch_unless_the_user_says_otherwise(code: str) -> None:
    sink = GrpcSink()
    requests = 3 if code == "UNIMPLEMENTED" else 1  # it asks for the two other signals
    sink.answers.extend(failing(code) for _ in range(requests + 1))
    async with exporting(sink) as exporter:
        with pytest.raises(Correctable, match=f"{code}: says the server") as caught:
            await exporter.export(metrics_batch())
    assert caught.value.code == code
    async with exporting(sink, retry_on_failure={"permanent_codes": [code]}) as exporter:
        with pytest.raises(Permanent, match=f"{code}: says the server"):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize(
    "words",
    [
        'grpc: Decompressor is not installed for grpc-encoding "deflate"',  # gRPC for Go, the OpenTelemetry Collector
        "Content is compressed with `deflate` which isn't supported",  # Tonic
        "Can't find decompressor for deflate",  # gRPC for Java
        "grpc-encoding deflate is not supported; use gzip, zstd",  # the otlp receiver
    ],
)
async def test_a_server_without_the_compression_keeps_the_batch_and_names_the_setting(words: str) -> None:
    async def answer(call: Any) -> None:
        await call.abort(grpc.StatusCode.UNIMPLEMENTED, words)

    sink = GrpcSink()
    sink.answers.append(answer)
    async with exporting(sink, compression="deflate") as exporter:
        with pytest.raises(Correctable, match="does not take compression: deflate; set compression: gzip or none"):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize(
    ("code", "after"), [("RESOURCE_EXHAUSTED", 7.5), ("RESOURCE_EXHAUSTED", 0), ("UNAVAILABLE", 2)]
)
async def test_retry_info_of_the_server_is_used(code: str, after: float) -> None:
    sink = GrpcSink()
    sink.answers.append(failing(code, retry_after=after))
    async with exporting(sink) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after == after


async def test_a_server_cannot_ask_for_an_endless_wait() -> None:
    sink = GrpcSink()
    sink.answers.append(failing("UNAVAILABLE", retry_after=1e11))
    async with exporting(sink) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after == LONGEST_WAIT


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"\xff\xff", "is not valid OTLP"),
        (b"\x0a" + b"\xff" * 100, "is not valid OTLP"),
        (bytes(100_000_000), "is too long"),
    ],
)
async def test_an_unreadable_response_to_an_accepted_request_is_logged_and_not_a_failure(
    answer: bytes, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink, own = GrpcSink(), context()
    sink.answers.append(answer)
    async with exporting(sink, own) as exporter:
        await exporter.export(metrics_batch())
    own_records = [one for one in caplog.records if one.name.startswith("otel_zernel")]  # the server logs, too
    assert len(own_records) == 1
    assert f"The server accepted the data points, but its response {text}" in caplog.text
    assert not own.drop.counts  # type: ignore[attr-defined]  # a testing.Dropped


async def test_log_records_arrive_and_their_rejections_are_counted() -> None:
    sink, own = GrpcSink(), context()
    rejecting = ExportLogsPartialSuccess(rejected_log_records=1, error_message="too old")
    sink.answers.append(ExportLogsServiceResponse(partial_success=rejecting))
    async with exporting(sink, own) as exporter:
        await exporter.export(logs_batch())
        await exporter.export(logs_batch())
    assert sink.of("logs") == [logs_batch().bytes_of("logs")] * 2
    assert own.drop.counts == {"partial_success": 1}  # type: ignore[attr-defined]  # a testing.Dropped


async def test_a_permanent_failure_with_retry_info_is_still_permanent() -> None:
    sink = GrpcSink()
    sink.answers.append(failing("INVALID_ARGUMENT", retry_after=1))
    async with exporting(sink) as exporter:
        with pytest.raises(Permanent):
            await exporter.export(metrics_batch())


async def test_invalid_status_details_are_ignored() -> None:
    async def answer(call: Any) -> None:
        call.set_trailing_metadata((("grpc-status-details-bin", b"\xff\xff"),))
        await call.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")

    sink = GrpcSink()
    sink.answers.append(answer)
    async with exporting(sink) as exporter:
        with pytest.raises(Permanent, match=r"too large \(if the request was too large, set sending_queue::batch"):
            await exporter.export(metrics_batch())


async def test_partial_success_is_counted_and_not_retried(caplog: pytest.LogCaptureFixture) -> None:
    sink, own = GrpcSink(), context()
    rejecting = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
    sink.answers.append(ExportMetricsServiceResponse(partial_success=rejecting))
    sink.answers.append(ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=1)))
    async with exporting(sink, own) as exporter:
        await exporter.export(metrics_batch(3))
        await exporter.export(spans_batch())
    assert own.drop.counts == {"partial_success": 3}  # type: ignore[attr-defined]  # a testing.Dropped
    assert "The server rejected 2 data points: too old" in caplog.text


@pytest.mark.parametrize(("claimed", "counted"), [(2**60, 3), (-1, 0)])
async def test_rejections_beyond_the_number_of_sent_items_are_ignored(claimed: int, counted: int) -> None:
    sink, own = GrpcSink(), context()
    rejecting = ExportMetricsPartialSuccess(rejected_data_points=claimed)
    sink.answers.append(ExportMetricsServiceResponse(partial_success=rejecting))
    async with exporting(sink, own) as exporter:
        await exporter.export(metrics_batch(3))
    assert own.drop.counts["partial_success"] == counted  # type: ignore[attr-defined]  # a testing.Dropped


async def test_a_message_without_rejections_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sink = GrpcSink()
    warning = ExportMetricsPartialSuccess(error_message="use v2")
    sink.answers.append(ExportMetricsServiceResponse(partial_success=warning))
    async with exporting(sink) as exporter:
        await exporter.export(metrics_batch())
    assert caplog.record_tuples == [
        ("otel_zernel.exporters", logging.WARNING, "The server accepted all data points, with a message: use v2")
    ]


async def test_a_missing_server_is_retryable_and_a_later_one_is_reached(unused_tcp_port: int) -> None:
    config = OtlpGrpcConfig.model_validate({"endpoint": f"http://localhost:{unused_tcp_port}"})
    sink = GrpcSink()
    async with OtlpGrpcExporter(config, context()) as exporter:
        with pytest.raises(Retryable, match="UNAVAILABLE"):
            await exporter.export(metrics_batch())
        async with sink.serve(port=unused_tcp_port):
            while not sink.requests:
                try:
                    await exporter.export(metrics_batch())
                except Retryable:
                    await asyncio.sleep(0.05)


async def test_a_plaintext_server_behind_tls_is_recognised() -> None:
    async with GrpcSink().serve() as port:
        config = OtlpGrpcConfig(endpoint=f"localhost:{port}")
        async with OtlpGrpcExporter(config, context()) as exporter:
            with pytest.raises(Retryable, match=r"does not speak TLS on this port; set tls::insecure: true"):
                await exporter.export(metrics_batch())


async def test_cancelling_an_export_cancels_the_call() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def never(call: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    sink = GrpcSink()
    sink.answers.append(never)
    async with exporting(sink) as exporter:
        task = asyncio.create_task(exporter.export(metrics_batch()))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(cancelled.wait(), 60)


async def test_many_exports_at_once_share_the_channel() -> None:
    sink = GrpcSink()
    async with exporting(sink, keepalive={"time": "5m"}) as exporter:
        await asyncio.gather(*(exporter.export(metrics_batch(count)) for count in range(1, 21)))
    assert len(sink.requests) == 20


async def test_profiles_arrive_unchanged() -> None:
    sink = GrpcSink()
    async with exporting(sink) as exporter:
        await exporter.export(profiles_batch())
    assert sink.services == ["profiles.v1development.ProfilesService"]
    assert sink.requests == [profiles_batch().bytes_of("profiles")]
