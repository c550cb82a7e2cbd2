"""The HTTP exporter with a real HTTP server."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

import pytest
import zstandard
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse

from otel_zernel.component import Context
from otel_zernel.errors import Permanent, Retryable
from otel_zernel.otlp.json import parse_metrics_json, parse_spans_json
from otel_zernel.testing import make_context
from otel_zernel_exporters.otlp import OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpHttpConfig
from otel_zernel_exporters.otlp.waits import LONGEST_WAIT
from tests.exporters.otlp.peers import HttpSink, logs_batch, metrics_batch, spans_batch

PROTO = "application/x-protobuf"
RETRYABLE = {429, 502, 503, 504}
PERMANENT = [status.value for status in HTTPStatus if status >= 400 and status not in RETRYABLE]
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body),
    "deflate": zlib.decompress,
    "none": lambda body: body,
}


def context() -> Context:
    return make_context("exporters", "otlp_http")


@asynccontextmanager
async def exporting(sink: HttpSink, own: Context | None = None, **options: Any) -> AsyncIterator[OtlpHttpExporter]:
    async with sink.serve() as url:
        config = OtlpHttpConfig.model_validate({"endpoint": url, **options})
        async with OtlpHttpExporter(config, own or context()) as exporter:
            yield exporter


def answering(*answers: Response) -> HttpSink:
    sink = HttpSink()
    sink.answers.extend(answers)
    return sink


@pytest.mark.parametrize("compression", sorted(DECOMPRESS))
async def test_protobuf_arrives_unchanged(compression: str) -> None:
    sink = HttpSink()
    async with exporting(sink, compression=compression) as exporter:
        await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    metrics, spans = sink.requests
    assert (metrics.path, spans.path) == ("/v1/metrics", "/v1/traces")
    assert DECOMPRESS[compression](metrics.body) == metrics_batch().metrics_bytes()
    assert DECOMPRESS[compression](spans.body) == spans_batch().spans_bytes()
    assert metrics.headers["content-type"] == PROTO
    assert metrics.headers.get("content-encoding", "none") == compression


@pytest.mark.parametrize("compression", sorted(DECOMPRESS))
async def test_json_has_the_same_content(compression: str) -> None:
    sink = HttpSink()
    async with exporting(sink, compression=compression, encoding="json") as exporter:
        await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    metrics, spans = sink.requests
    assert parse_metrics_json(DECOMPRESS[compression](metrics.body)) == metrics_batch().metrics
    assert parse_spans_json(DECOMPRESS[compression](spans.body)) == spans_batch().spans
    assert metrics.headers["content-type"] == "application/json"


async def test_a_batch_of_megabytes_arrives() -> None:
    sink = HttpSink()
    batch = metrics_batch(30_000)
    async with exporting(sink) as exporter:
        await exporter.export(batch)
    assert gzip.decompress(sink.requests[0].body) == batch.metrics_bytes()


async def test_configured_headers_are_sent_and_do_not_replace_our_own() -> None:
    sink = HttpSink()
    headers = {"Authorization": "Bearer x", "User-Agent": "mine", "Content-Type": "text/plain"}
    async with exporting(sink, headers=headers) as exporter:
        await exporter.export(metrics_batch())
    sent = sink.requests[0].headers
    assert (sent["authorization"], sent["user-agent"], sent["content-type"]) == ("Bearer x", "mine", PROTO)


async def test_a_signals_own_endpoint_is_used_unchanged() -> None:
    sink = HttpSink()
    async with sink.serve() as url:
        config = OtlpHttpConfig.model_validate({"metrics_endpoint": f"{url}/api/prom/push"})
        async with OtlpHttpExporter(config, context()) as exporter:
            await exporter.export(metrics_batch())
            with pytest.raises(Permanent, match="no endpoint for traces: set endpoint or traces_endpoint"):
                await exporter.export(spans_batch())
    assert [request.path for request in sink.requests] == ["/api/prom/push"]


async def test_a_temporary_failure_is_retryable() -> None:
    async with exporting(answering(*(Response("busy", status) for status in RETRYABLE))) as exporter:
        for status in RETRYABLE:
            with pytest.raises(Retryable, match=f"/v1/metrics: {status} .*: busy") as caught:
                await exporter.export(metrics_batch())
            assert caught.value.after is None


async def test_any_other_failure_is_permanent() -> None:
    async with exporting(answering(*(Response("no", status) for status in PERMANENT))) as exporter:
        for status in PERMANENT:
            with pytest.raises(Permanent, match=f"/v1/metrics: {status} "):
                await exporter.export(metrics_batch())


async def test_retry_after_in_seconds_is_used() -> None:
    answers = [Response(None, status, {"retry-after": "12"}) for status in RETRYABLE]
    async with exporting(answering(*answers)) as exporter:
        for _ in RETRYABLE:
            with pytest.raises(Retryable) as caught:
                await exporter.export(metrics_batch())
            assert caught.value.after == 12


@pytest.mark.parametrize(("ahead", "after"), [(90, 90), (-90, 0)])
async def test_retry_after_as_a_date_is_used(ahead: float, after: float) -> None:
    own = context()
    now = datetime.fromtimestamp(own.clock.time_ns() / 1e9, UTC)
    date = format_datetime(now + timedelta(seconds=ahead), usegmt=True)
    async with exporting(answering(Response(None, 503, {"retry-after": date})), own) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after == pytest.approx(after, abs=1)


@pytest.mark.parametrize(
    "nonsense",
    [
        "soon",
        "-5",
        "Mon, 99 Foo 2020",
        "Mon, 01 Jan 2024 00:00:00 +99999999999999999999",
    ],
)
async def test_an_invalid_retry_after_is_ignored(nonsense: str) -> None:
    async with exporting(answering(Response(None, 429, {"retry-after": nonsense}))) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after is None


@pytest.mark.parametrize(
    "answer",
    [
        Response(Status(message="field 3 is\n wrong").SerializeToString(), 400, media_type=PROTO),
        JSONResponse({"code": 3, "message": "field 3 is wrong"}, 400),
        Response("field 3 is wrong", 400, media_type="text/plain"),
    ],
)
async def test_the_message_of_the_server_is_in_the_error(answer: Response) -> None:
    async with exporting(answering(answer)) as exporter:
        with pytest.raises(Permanent, match="400 Bad Request: field 3 is wrong"):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize("kind", [PROTO, "application/json", "text/html"])
async def test_an_error_page_is_shortened(kind: str) -> None:
    async with exporting(answering(Response(b"\xff" * 5_000_000, 500, media_type=kind))) as exporter:
        with pytest.raises(Permanent) as caught:
            await exporter.export(metrics_batch())
    assert len(str(caught.value)) < 700


async def test_only_the_beginning_of_an_endless_response_is_read() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    async with exporting(answering(StreamingResponse(endless(), 200))) as exporter:
        await asyncio.wait_for(exporter.export(metrics_batch()), 10)


@pytest.mark.parametrize("value", ["99999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "9" * 5000])
async def test_a_server_cannot_ask_for_an_endless_wait(value: str) -> None:
    async with exporting(answering(Response(None, 503, {"retry-after": value}))) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert caught.value.after == LONGEST_WAIT


@pytest.mark.parametrize("status", [503, 200])
@pytest.mark.parametrize("body", ["[" * 60_000, '{"a":' * 12_000, '{"message": ' + "9" * 60_000])
async def test_a_deeply_nested_answer_is_only_a_message(status: int, body: str) -> None:
    async with exporting(answering(Response(body, status, media_type="application/json"))) as exporter:
        if status == 200:
            await exporter.export(metrics_batch())
        else:
            with pytest.raises(Retryable, match="503 Service Unavailable: "):
                await exporter.export(metrics_batch())


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("location", [None, "http://[", "http://a:99999/", "/elsewhere", "http://\xe9.example/"])
async def test_every_redirect_drops_the_batch_with_a_reason(status: int, location: str | None) -> None:
    headers = {"location": location} if location else {}
    sink = answering(Response(None, status, headers))
    async with exporting(sink) as exporter:
        with pytest.raises(Permanent, match=rf"/v1/metrics: {status} .*redirects are not followed"):
            await exporter.export(metrics_batch())
    assert len(sink.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        Response("no such path /v1/metrics?token=geheim", 404),
        Response("busy: token=geheim", 503),
        Response(None, 302, {"location": "https://me:geheim@a/?token=geheim"}),
    ],
)
async def test_a_token_in_the_url_is_not_in_the_error(answer: Response) -> None:
    sink = answering(answer)
    async with sink.serve() as url:
        config = OtlpHttpConfig(endpoint=f"{url}?token=geheim")
        async with OtlpHttpExporter(config, context()) as exporter:
            with pytest.raises((Retryable, Permanent), match=r"/v1/metrics\?\[REDACTED\]: ") as caught:
                await exporter.export(metrics_batch())
    assert "geheim" not in str(caught.value)
    assert sink.requests[0].query == "token=geheim"


async def test_a_token_in_the_url_of_a_missing_server_is_not_in_the_error(unused_tcp_port: int) -> None:
    config = OtlpHttpConfig(endpoint=f"http://localhost:{unused_tcp_port}/?token=geheim")
    async with OtlpHttpExporter(config, context()) as exporter:
        with pytest.raises(Retryable) as caught:
            await exporter.export(metrics_batch())
    assert "geheim" not in str(caught.value)


async def test_cookies_are_neither_kept_nor_sent() -> None:
    sink = answering(*(Response(None, 200, {"set-cookie": f"cookie{n}=1; Path=/"}) for n in range(50)))
    async with exporting(sink) as exporter:
        for _ in range(51):
            await exporter.export(metrics_batch())
        async with exporter._clients.in_use() as client:
            assert len(client.cookies) == 0
    assert not any("cookie" in request.headers for request in sink.requests)


async def test_an_invalid_response_to_an_accepted_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    own = context()
    async with exporting(answering(Response(b"\xff", media_type=PROTO)), own) as exporter:
        await exporter.export(metrics_batch())
    assert "The server accepted the data points, but its response is not valid OTLP" in caplog.text
    assert not own.drop.counts  # type: ignore[attr-defined]  # a testing.Dropped


@pytest.mark.parametrize("encoding", ["proto", "json"])
async def test_log_records_arrive(encoding: str) -> None:
    sink = HttpSink()
    async with exporting(sink, encoding=encoding, compression="none") as exporter:
        await exporter.export(logs_batch())
    (request,) = sink.requests
    assert request.path == "/v1/logs"
    if encoding == "proto":
        assert request.body == logs_batch().logs_bytes()
    else:
        record = json.loads(request.body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
        assert record["body"] == {"stringValue": "loss is NaN"}


async def test_the_endpoint_for_logs_is_used_unchanged() -> None:
    sink = HttpSink()
    async with sink.serve() as url:
        config = OtlpHttpConfig.model_validate({"endpoint": "http://localhost:1", "logs_endpoint": f"{url}/loki"})
        async with OtlpHttpExporter(config, context()) as exporter:
            await exporter.export(logs_batch())
    assert [request.path for request in sink.requests] == ["/loki"]


async def test_a_redirect_is_not_followed() -> None:
    sink = answering(RedirectResponse("/elsewhere", 307))
    async with exporting(sink) as exporter:
        with pytest.raises(Permanent, match="redirects are not followed"):
            await exporter.export(metrics_batch())
    assert len(sink.requests) == 1


def rejecting(count: int, message: str = "") -> ExportMetricsServiceResponse:
    partial = ExportMetricsPartialSuccess(rejected_data_points=count, error_message=message)
    return ExportMetricsServiceResponse(partial_success=partial)


@pytest.mark.parametrize(
    "answer",
    [
        Response(rejecting(2, "too old").SerializeToString(), media_type=PROTO),
        JSONResponse({"partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "too old", "new": 1}}),
    ],
)
async def test_partial_success_is_counted_and_not_retried(answer: Response, caplog: pytest.LogCaptureFixture) -> None:
    own = context()
    async with exporting(answering(answer), own) as exporter:
        await exporter.export(metrics_batch(3))
    assert own.drop.counts == {"partial_success": 2}  # type: ignore[attr-defined]  # a testing.Dropped
    assert "The server rejected 2 data points: too old" in caplog.text


@pytest.mark.parametrize(
    "answer",
    [
        Response(status_code=204),
        Response("ok", media_type="text/plain"),
        Response(b"\xff", media_type=PROTO),
        Response(b"", media_type="application/json"),
        JSONResponse({}),
        JSONResponse({"partialSuccess": {}}),
    ],
)
async def test_any_2xx_is_success(answer: Response) -> None:
    own = context()
    async with exporting(answering(answer), own) as exporter:
        await exporter.export(metrics_batch())
    assert not own.drop.counts  # type: ignore[attr-defined]  # a testing.Dropped


async def test_a_missing_server_is_retryable(unused_tcp_port: int) -> None:
    config = OtlpHttpConfig(endpoint=f"http://localhost:{unused_tcp_port}")
    async with OtlpHttpExporter(config, context()) as exporter:
        with pytest.raises(Retryable, match=r"no answer from .*/v1/metrics: nothing listens on this port"):
            await exporter.export(metrics_batch())


async def test_a_connection_that_breaks_off_is_retryable() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.close()

    async with await asyncio.start_server(hang_up, "localhost", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = OtlpHttpConfig(endpoint=f"http://localhost:{port}")
        async with OtlpHttpExporter(config, context()) as exporter:
            with pytest.raises(Retryable):
                await exporter.export(metrics_batch())


async def test_a_plaintext_server_behind_https_is_recognised() -> None:
    async with HttpSink().serve() as url:
        config = OtlpHttpConfig(endpoint=url.replace("http:", "https:"))
        async with OtlpHttpExporter(config, context()) as exporter:
            with pytest.raises(Retryable, match=r"does not speak TLS on this port; write http://"):
                await exporter.export(metrics_batch())


async def test_many_exports_at_once_arrive() -> None:
    sink = HttpSink()
    async with exporting(sink) as exporter:
        await asyncio.gather(*(exporter.export(metrics_batch(count)) for count in range(1, 21)))
    assert len(sink.requests) == 20


async def test_the_sdks_server_side_types_read_our_json() -> None:
    sink = HttpSink()
    async with exporting(sink, encoding="json", compression="none") as exporter:
        await exporter.export(spans_batch())
    span = json.loads(sink.requests[0].body)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert span["traceId"] == bytes(range(16)).hex()


async def test_leaving_without_entering_and_leaving_twice_are_safe() -> None:
    await OtlpHttpExporter(OtlpHttpConfig(endpoint="http://a"), context()).__aexit__(None, None, None)
    sink = HttpSink()
    async with exporting(sink) as exporter:
        await exporter.export(spans_batch())
        await exporter.__aexit__(None, None, None)
    assert len(sink.requests) == 1
