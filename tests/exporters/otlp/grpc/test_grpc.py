"""The gRPC exporter with a real gRPC server."""

import asyncio
import logging
from typing import Any

import grpc
import pytest
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

from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel_libraries.clients.waits import LONGEST_WAIT
from tests.exporters.otlp.exporting import aborting, answering_grpc, context, exporter_of, exporting, failing
from tests.exporters.otlp.peers import GrpcSink, logs_batch, metrics_batch, profiles_batch, spans_batch

RETRYABLE = {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"}
PERMANENT = {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
CORRECTABLE = {code.name for code in grpc.StatusCode} - RETRYABLE - PERMANENT - {"OK"}


@pytest.mark.parametrize("compression", ["gzip", "deflate", "none"])
async def test_every_signal_of_a_batch_is_a_request_with_unchanged_bytes(compression: str) -> None:
    sink, batch = GrpcSink(), metrics_batch()
    batch.edit_spans().CopyFrom(spans_batch().spans)
    async with exporting(sink, compression=compression) as exporter:
        await exporter.export(batch)
        await exporter.export(logs_batch())
        await exporter.export(profiles_batch())
    assert list(zip((name.partition(".")[0] for name in sink.services), sink.requests, strict=True)) == [
        ("metrics", metrics_batch().bytes_of("metrics")),
        ("trace", spans_batch().bytes_of("traces")),
        ("logs", logs_batch().bytes_of("logs")),
        ("profiles", profiles_batch().bytes_of("profiles")),
    ]


async def test_headers_and_user_agent_are_sent() -> None:
    sink = GrpcSink()
    async with exporting(sink, headers={"Authorization": "Bearer x", "trace-bin": "\x20raw"}) as exporter:
        await exporter.export(metrics_batch())
    assert sink.metadata[0]["authorization"] == "Bearer x"
    assert sink.metadata[0]["trace-bin"] == b"\x20raw"
    assert str(sink.metadata[0]["user-agent"]).startswith("otel-zernel/")


async def test_a_temporary_failure_is_retryable() -> None:
    async with exporting(answering_grpc(*map(failing, RETRYABLE))) as exporter:
        for code in RETRYABLE:
            with pytest.raises(Retryable, match=f"{code}: says the server") as caught:
                await exporter.export(metrics_batch())
            assert caught.value.after is None


@pytest.mark.parametrize("retry_after", [None, 1])
async def test_a_failure_of_the_data_is_permanent(retry_after: float | None) -> None:
    codes = PERMANENT if retry_after is None else {"INVALID_ARGUMENT"}
    async with exporting(answering_grpc(*(failing(code, retry_after=retry_after) for code in codes))) as exporter:
        for code in codes:
            with pytest.raises(Permanent, match=f"{code}: says the server"):
                await exporter.export(metrics_batch())


async def test_a_failure_that_somebody_can_correct_keeps_the_batch_unless_the_user_says_otherwise() -> None:
    # After UNIMPLEMENTED, the exporter asks for the two other signals.
    answers = [failing(code) for code in CORRECTABLE for _ in range(3 if code == "UNIMPLEMENTED" else 1)]
    async with exporting(answering_grpc(*answers)) as exporter:
        for code in CORRECTABLE:
            with pytest.raises(Correctable, match=f"{code}: says the server") as caught:
                await exporter.export(metrics_batch())
            assert caught.value.code == code
    codes = {"permanent_codes": sorted(CORRECTABLE)}
    async with exporting(answering_grpc(*map(failing, CORRECTABLE)), retry_on_failure=codes) as exporter:
        for code in CORRECTABLE:
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
    async with exporting(answering_grpc(failing("UNIMPLEMENTED", words=words)), compression="deflate") as exporter:
        with pytest.raises(Correctable, match="does not take compression: deflate; set compression: gzip or none"):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize(
    ("code", "asked", "after"),
    [
        ("RESOURCE_EXHAUSTED", 7.5, 7.5),
        ("RESOURCE_EXHAUSTED", 0, 0),
        ("UNAVAILABLE", 2, 2),
        pytest.param("UNAVAILABLE", 1e11, LONGEST_WAIT, id="a server cannot ask for an endless wait"),
    ],
)
async def test_retry_info_of_the_server_is_used(code: str, asked: float, after: float) -> None:
    async with exporting(answering_grpc(failing(code, retry_after=asked))) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after == after


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
    own = context("grpc")
    async with exporting(answering_grpc(answer), own) as exporter:
        await exporter.export(metrics_batch())
    # The server logs, too.
    assert [record.name.startswith("otel_zernel") for record in caplog.records].count(True) == 1
    assert f"The server accepted the data points, but its response {text}" in caplog.text
    assert not own.drop.counts  # type: ignore[attr-defined]  # a testing.Dropped


async def test_invalid_status_details_are_ignored() -> None:
    answer = aborting("RESOURCE_EXHAUSTED", "too large", b"\xff\xff")
    async with exporting(answering_grpc(answer)) as exporter:
        with pytest.raises(Permanent, match=r"too large \(if the request was too large, set sending_queue::batch"):
            await exporter.export(metrics_batch())


async def test_partial_success_is_counted_and_not_retried(caplog: pytest.LogCaptureFixture) -> None:
    own = context("grpc")
    metrics = ExportMetricsPartialSuccess(rejected_data_points=2, error_message="too old")
    sink = answering_grpc(
        ExportMetricsServiceResponse(partial_success=metrics),
        ExportTraceServiceResponse(partial_success=ExportTracePartialSuccess(rejected_spans=1)),
        ExportLogsServiceResponse(partial_success=ExportLogsPartialSuccess(rejected_log_records=1)),
    )
    async with exporting(sink, own) as exporter:
        for batch in (metrics_batch(3), spans_batch(), logs_batch()):
            await exporter.export(batch)
    assert own.drop.counts == {"partial_success": 4}  # type: ignore[attr-defined]  # a testing.Dropped
    assert len(sink.requests) == 3
    assert "The server rejected 2 data points: too old" in caplog.text


@pytest.mark.parametrize(("claimed", "counted"), [(2**60, 3), (-1, 0)])
async def test_rejections_beyond_the_number_of_sent_items_are_ignored(claimed: int, counted: int) -> None:
    own = context("grpc")
    rejecting = ExportMetricsPartialSuccess(rejected_data_points=claimed)
    async with exporting(answering_grpc(ExportMetricsServiceResponse(partial_success=rejecting)), own) as exporter:
        await exporter.export(metrics_batch(3))
    assert own.drop.counts["partial_success"] == counted  # type: ignore[attr-defined]  # a testing.Dropped


async def test_a_message_without_rejections_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    warning = ExportMetricsPartialSuccess(error_message="use v2")
    async with exporting(answering_grpc(ExportMetricsServiceResponse(partial_success=warning))) as exporter:
        await exporter.export(metrics_batch())
    assert caplog.record_tuples == [
        ("otel_zernel.exporters", logging.WARNING, "The server accepted all data points, with a message: use v2")
    ]


async def test_a_missing_server_is_retryable_and_a_later_one_is_reached(unused_tcp_port: int) -> None:
    sink = GrpcSink()
    async with exporter_of("grpc", f"http://localhost:{unused_tcp_port}") as exporter:
        with pytest.raises(Retryable, match="UNAVAILABLE"):
            await exporter.export(metrics_batch())
        async with sink.serve(port=unused_tcp_port):
            while not sink.requests:
                try:
                    await exporter.export(metrics_batch())
                except Retryable:
                    await asyncio.sleep(0.05)


async def test_cancelling_an_export_cancels_the_call() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def never(call: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with exporting(answering_grpc(never)) as exporter:
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
