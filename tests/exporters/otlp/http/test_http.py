"""The HTTP exporter with a real HTTP server."""

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from starlette.responses import Response

from otel_zernel.batch import Batch
from otel_zernel.errors import Permanent, Retryable, Unwanted
from otel_zernel.otlp.json import parse_json, to_json
from otel_zernel_exporters.otlp import OtlpHttpExporter
from otel_zernel_exporters.otlp.config import OtlpHttpConfig
from tests.exporters.otlp.http.exporting import PROTO, answering, context, exporting
from tests.exporters.otlp.peers import HttpSink, logs_batch, metrics_batch, profiles_batch, spans_batch

DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body),
    "deflate": zlib.decompress,
    "none": lambda body: body,
}


@pytest.mark.parametrize("compression", sorted(DECOMPRESS))
async def test_protobuf_arrives_unchanged(compression: str) -> None:
    sink = HttpSink()
    async with exporting(sink, compression=compression) as exporter:
        await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    metrics, spans = sink.requests
    assert (metrics.path, spans.path) == ("/v1/metrics", "/v1/traces")
    assert DECOMPRESS[compression](metrics.body) == metrics_batch().bytes_of("metrics")
    assert DECOMPRESS[compression](spans.body) == spans_batch().bytes_of("traces")
    assert metrics.headers["content-type"] == PROTO
    assert metrics.headers.get("content-encoding", "none") == compression


@pytest.mark.parametrize("compression", sorted(DECOMPRESS))
async def test_json_has_the_same_content(compression: str) -> None:
    sink = HttpSink()
    async with exporting(sink, compression=compression, encoding="json") as exporter:
        await exporter.export(metrics_batch())
        await exporter.export(spans_batch())
    metrics, spans = sink.requests
    assert parse_json(MetricsData, DECOMPRESS[compression](metrics.body)) == metrics_batch().metrics
    assert parse_json(TracesData, DECOMPRESS[compression](spans.body)) == spans_batch().spans
    assert metrics.headers["content-type"] == "application/json"


async def test_a_batch_of_megabytes_arrives() -> None:
    sink = HttpSink()
    batch = metrics_batch(30_000)
    async with exporting(sink) as exporter:
        await exporter.export(batch)
    assert gzip.decompress(sink.requests[0].body) == batch.bytes_of("metrics")


async def test_configured_headers_are_sent_and_do_not_replace_our_own() -> None:
    sink = HttpSink()
    headers = {"Authorization": "Bearer x", "User-Agent": "mine", "Content-Type": "text/plain"}
    async with exporting(sink, headers=headers) as exporter:
        await exporter.export(metrics_batch())
    sent = sink.requests[0].headers
    assert (sent["authorization"], sent["user-agent"], sent["content-type"]) == ("Bearer x", "mine", PROTO)


@pytest.mark.parametrize(
    ("signal", "batch", "common"),
    [("metrics", metrics_batch(), {}), ("logs", logs_batch(), {"endpoint": "http://localhost:1"})],
)
async def test_a_signals_own_endpoint_is_used_unchanged(signal: str, batch: Batch, common: dict[str, str]) -> None:
    sink = HttpSink()
    async with sink.serve() as url:
        config = OtlpHttpConfig.model_validate({**common, f"{signal}_endpoint": f"{url}/api/push"})
        async with OtlpHttpExporter(config, context()) as exporter:
            await exporter.export(batch)
    assert [request.path for request in sink.requests] == ["/api/push"]


async def test_without_a_common_endpoint_only_the_signals_with_a_url_are_accepted() -> None:
    def accepted(**urls: str) -> set[str]:
        return {*OtlpHttpExporter(OtlpHttpConfig.model_validate(urls), context()).signals}

    url = "http://tempo:4318/v1/traces"
    assert accepted(traces_endpoint=url) == {"traces"}
    assert accepted(traces_endpoint=url, logs_endpoint=url) == {"traces", "logs"}
    assert accepted(endpoint="http://tempo:4318", traces_endpoint=url) == {"metrics", "traces", "logs", "profiles"}


async def test_a_pipeline_of_all_signals_sends_only_those_that_have_a_url(tmp_path: Path) -> None:
    sink = HttpSink()
    async with sink.serve() as url:
        (tmp_path / "in.jsonl").write_bytes(to_json(metrics_batch().metrics) + b"\n" + to_json(spans_batch().spans))
        config = {
            "receivers": {"otlp_json_file": {"include": [str(tmp_path / "in.jsonl")]}},
            "exporters": {"otlp_http": {"traces_endpoint": f"{url}/v1/traces"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"training": {"receivers": ["otlp_json_file"], "exporters": ["otlp_http"]}},
            },
        }
        command = ("-m", "otel_zernel", "run", "--exit-when-done", "--config", f"yaml:{json.dumps(config)}")
        collector = await asyncio.create_subprocess_exec(sys.executable, *command)
        assert await collector.wait() == 0
    assert [request.path for request in sink.requests] == ["/v1/traces"]


@pytest.mark.parametrize(
    "answer",
    [
        Response("no such path /v1/metrics?token=geheim", 410),
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
        async with exporter._posting._clients.in_use() as client:
            assert len(client.cookies) == 0
    assert not any("cookie" in request.headers for request in sink.requests)


@pytest.mark.parametrize("encoding", ["proto", "json"])
async def test_log_records_arrive(encoding: str) -> None:
    sink = HttpSink()
    async with exporting(sink, encoding=encoding, compression="none") as exporter:
        await exporter.export(logs_batch())
    (request,) = sink.requests
    assert request.path == "/v1/logs"
    if encoding == "proto":
        assert request.body == logs_batch().bytes_of("logs")
    else:
        record = json.loads(request.body)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
        assert record["body"] == {"stringValue": "loss is NaN"}


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


@pytest.mark.parametrize("encoding", ["proto", "json"])
async def test_profiles_arrive_at_the_path_of_their_version(encoding: str) -> None:
    sink = HttpSink()
    async with exporting(sink, compression="none", encoding=encoding) as exporter:
        await exporter.export(profiles_batch())
    (posted,) = sink.requests
    decoded = ProfilesData.FromString(posted.body) if encoding == "proto" else parse_json(ProfilesData, posted.body)
    assert (posted.path, decoded) == ("/v1development/profiles", profiles_batch().profiles)


async def test_a_server_without_a_path_for_profiles_gets_no_more_of_them() -> None:
    sink, own = answering(Response("", 404)), context()
    async with exporting(sink, own) as exporter:
        for _ in range(2):
            with pytest.raises(Unwanted, match=r"takes metrics and traces and logs, but no profiles \(404\)"):
                await exporter.export(profiles_batch())
        await exporter.export(metrics_batch())
    probes = ["/v1/metrics", "/v1/traces", "/v1/logs"]
    assert [request.path for request in sink.requests] == ["/v1development/profiles", *probes, "/v1/metrics"]
