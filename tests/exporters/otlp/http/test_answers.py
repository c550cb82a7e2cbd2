"""The answers of a server over HTTP: temporary failures, permanent ones, partial successes, and hostile ones."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from starlette.responses import JSONResponse, Response, StreamingResponse

from otel_zernel.errors import Correctable, Permanent, Retryable
from otel_zernel_libraries.clients.waits import LONGEST_WAIT
from tests.exporters.otlp.exporting import PROTO, answering, context, exporting
from tests.exporters.otlp.peers import metrics_batch

RETRYABLE = {429, 502, 503, 504}
NO_SUCH_PATH = {404, 405, 501}
"""Statuses after which the exporter asks for the two other signals."""
PERMANENT = [400, 409, 413, 422]
CORRECTABLE = [code.value for code in HTTPStatus if code >= 400 and code not in (*RETRYABLE, *PERMANENT)]


async def test_a_temporary_failure_is_retryable() -> None:
    async with exporting(answering(*(Response("busy", status) for status in RETRYABLE))) as exporter:
        for status in RETRYABLE:
            with pytest.raises(Retryable, match=f"/v1/metrics: {status} .*: busy") as caught:
                await exporter.export(metrics_batch())
            assert caught.value.after is None


async def test_a_failure_that_somebody_can_correct_keeps_the_batch_unless_the_user_says_otherwise() -> None:
    answers = [Response("no", status) for status in CORRECTABLE]
    missing = [answer for answer in answers for _ in range(3 if answer.status_code in NO_SUCH_PATH else 1)]
    async with exporting(answering(*missing)) as exporter:
        for status in CORRECTABLE:
            with pytest.raises(Correctable, match=f"/v1/metrics: {status} ") as caught:
                await exporter.export(metrics_batch())
            assert caught.value.code == str(status)
    async with exporting(answering(*answers), retry_on_failure={"permanent_codes": CORRECTABLE}) as exporter:
        for status in CORRECTABLE:
            with pytest.raises(Permanent, match=f"/v1/metrics: {status} "):
                await exporter.export(metrics_batch())


GZIP = "does not take this compression: set compression: gzip or none"
TLS = "expects TLS: write https:// in the endpoint"
PATH = "this path does not accept OTLP: set the endpoint"


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("unsupported Content-Encoding: zstd", GZIP),
        ('unsupported compression: zstd. Only "gzip" or no compression supported', GZIP),
        ("Unsupported encoding zstd", GZIP),
        ("Content-Encoding zstd is not supported", GZIP),
        ("Content-Encoding: zstd is not supported", GZIP),
        ("Compression algorithm 'deflate' is disabled.", GZIP),
        ("Client sent an HTTP request to an HTTPS server.", TLS),
        ('unsupported path requested: "/v1/metrics"', PATH),  # VictoriaMetrics 1.151
        (
            'remoteAddr: "127.0.0.1:57758"; requestURI: /v1/metrics; unsupported path requested: "/v1/metrics"',
            PATH,
        ),  # 1.79
        ('{"error":"no handler found for uri [/v1/metrics] and method [POST]"}', PATH),  # Elasticsearch
    ],
)
@pytest.mark.parametrize("type_", [PROTO, "text/plain", "application/json"])
async def test_a_400_about_a_setting_keeps_the_batch(words: str, advice: str, type_: str) -> None:
    body = Status(message=words).SerializeToString() if type_ == PROTO else words
    async with exporting(answering(Response(body, 400, media_type=type_))) as exporter:
        with pytest.raises(Correctable, match=advice):
            await exporter.export(metrics_batch())


@pytest.mark.parametrize(
    "words",
    [
        'out of order exemplar: {__name__="zstd_decompress_bytes_bucket", path="/find"}',
        'invalid label value: {__name__="x", help="unsupported compression: zstd"}',
        'too old sample: {__name__="content_encoding_unsupported_total"}',
        'bad value: {text="unsupported path requested: no handler found for uri"}',
        'bad value: {text="Client sent an HTTP request to an HTTPS server."}',
    ],
)
async def test_names_and_values_of_the_data_are_no_words_about_a_setting(words: str) -> None:
    async with exporting(answering(*(Response(words, 400) for _ in range(2)))) as exporter:
        with pytest.raises(Permanent) as caught:
            await exporter.export(metrics_batch())
    assert str(caught.value).endswith(words)


@pytest.mark.parametrize(
    ("title", "advice"),
    [
        ("400 No required SSL certificate was sent", "set tls::cert_file and tls::key_file"),
        ("400 The plain HTTP request was sent to HTTPS port", "write https:// in the endpoint"),
        ("Request Blocked", "this path does not accept OTLP: set the endpoint"),
    ],
)
async def test_a_web_page_with_400_comes_from_a_proxy_and_keeps_the_batch(title: str, advice: str) -> None:
    page = Response(f"<html><head><title>{title}</title></head></html>", 400, media_type="text/html")
    async with exporting(answering(page)) as exporter:
        with pytest.raises(Correctable, match=f'the web page "{title}".*{advice}'):
            await exporter.export(metrics_batch())


async def test_a_web_page_that_answers_with_success_keeps_the_batch() -> None:
    page = Response("<html><title>Log in</title></html>", media_type="text/html")
    async with exporting(answering(page)) as exporter:
        with pytest.raises(Correctable, match='the web page "Log in" answers, no OTLP server'):
            await exporter.export(metrics_batch())


async def test_a_failure_of_the_data_is_permanent() -> None:
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
    own = context("http")
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
        with pytest.raises(Correctable) as caught:
            await exporter.export(metrics_batch())
    assert len(str(caught.value)) < 700


async def test_only_the_beginning_of_an_endless_response_is_read() -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0)

    async with exporting(answering(StreamingResponse(endless(), 200))) as exporter:
        await asyncio.wait_for(exporter.export(metrics_batch()), 60)


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
async def test_every_redirect_keeps_the_batch_with_a_reason(status: int, location: str | None) -> None:
    headers = {"location": location} if location else {}
    sink = answering(Response(None, status, headers))
    async with exporting(sink) as exporter:
        with pytest.raises(Correctable, match=rf"/v1/metrics: {status} .*redirects are not followed"):
            await exporter.export(metrics_batch())
    assert len(sink.requests) == 1


async def test_an_invalid_response_to_an_accepted_request_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    own = context("http")
    async with exporting(answering(Response(b"\xff", media_type=PROTO)), own) as exporter:
        await exporter.export(metrics_batch())
    assert "The server accepted the data points, but its response is not valid OTLP" in caplog.text
    assert not own.drop.counts  # type: ignore[attr-defined]  # a testing.Dropped


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
    own = context("http")
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
    own = context("http")
    async with exporting(answering(answer), own) as exporter:
        await exporter.export(metrics_batch())
    assert not own.drop.counts  # type: ignore[attr-defined]  # a testing.Dropped
