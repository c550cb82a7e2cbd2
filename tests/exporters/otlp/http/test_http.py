"""The HTTP exporter with a real HTTP server."""

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from starlette.responses import Response

from otel_zernel.batch import Batch, Signal
from otel_zernel.errors import Permanent, Retryable, Unwanted
from otel_zernel.otlp.json import parse_json, to_json
from tests.exporters.otlp.exporting import PROTO, answering, context, exporter_of, exporting
from tests.exporters.otlp.peers import HttpSink, logs_batch, metrics_batch, profiles_batch, serve_raw, spans_batch

BATCHES: dict[Signal, Callable[[], Batch]] = {
    "metrics": metrics_batch,
    "traces": spans_batch,
    "logs": logs_batch,
    "profiles": profiles_batch,
}
CONTENT_TYPES = {"proto": PROTO, "json": "application/json"}
DECOMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body),
    "deflate": zlib.decompress,
    "none": lambda body: body,
}


@pytest.mark.parametrize("encoding", ["proto", "json"])
@pytest.mark.parametrize("compression", sorted(DECOMPRESS))
async def test_every_signal_arrives_unchanged_at_its_path(compression: str, encoding: str) -> None:
    sink = HttpSink()
    batches = {signal: batch() for signal, batch in BATCHES.items()}
    async with exporting(sink, compression=compression, encoding=encoding) as exporter:
        for batch in batches.values():
            await exporter.export(batch)
    paths = ["/v1/metrics", "/v1/traces", "/v1/logs", "/v1development/profiles"]
    assert [posted.path for posted in sink.requests] == paths
    for posted, (signal, batch) in zip(sink.requests, batches.items(), strict=True):
        body = DECOMPRESS[compression](posted.body)
        if encoding == "json":
            assert parse_json(type(batch.message(signal)), body) == batch.message(signal)
        else:
            assert body == batch.bytes_of(signal)
        assert posted.headers["content-type"] == CONTENT_TYPES[encoding]
        assert posted.headers.get("content-encoding", "none") == compression


async def test_json_has_ids_in_hex_and_texts_as_they_are() -> None:
    sink = HttpSink()
    async with exporting(sink, encoding="json", compression="none") as exporter:
        await exporter.export(spans_batch())
        await exporter.export(logs_batch())
    spans, logs = (json.loads(posted.body) for posted in sink.requests)
    assert spans["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] == bytes(range(16)).hex()
    record = logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert record["body"] == {"stringValue": "loss is NaN"}


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
    ("signal", "batch", "common"), [("metrics", metrics_batch(), ""), ("logs", logs_batch(), "http://localhost:1")]
)
async def test_a_signals_own_endpoint_is_used_unchanged(signal: str, batch: Batch, common: str) -> None:
    sink = HttpSink()
    async with sink.serve() as url:
        urls: dict[str, Any] = {"endpoint": common, f"{signal}_endpoint": f"{url}/api/push"}
        async with exporter_of("http", **urls) as exporter:
            await exporter.export(batch)
    assert [request.path for request in sink.requests] == ["/api/push"]


async def test_without_a_common_endpoint_only_the_signals_with_a_url_are_accepted() -> None:
    def accepted(**urls: Any) -> set[str]:
        return set(exporter_of("http", urls.pop("endpoint", ""), **urls).signals)

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
    async with sink.serve() as url, exporter_of("http", f"{url}?token=geheim") as exporter:
        with pytest.raises((Retryable, Permanent), match=r"/v1/metrics\?\[REDACTED\]: ") as caught:
            await exporter.export(metrics_batch())
    assert "geheim" not in str(caught.value)
    assert sink.requests[0].query == "token=geheim"


async def test_a_token_in_the_url_of_a_missing_server_is_not_in_the_error(unused_tcp_port: int) -> None:
    async with exporter_of("http", f"http://localhost:{unused_tcp_port}/?token=geheim") as exporter:
        with pytest.raises(Retryable, match=r"no answer from .*/v1/metrics.*: nothing listens on this port") as caught:
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


async def test_a_connection_that_breaks_off_is_retryable() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(100)

    async with serve_raw(hang_up) as port, exporter_of("http", f"http://localhost:{port}") as exporter:
        with pytest.raises(Retryable):
            await exporter.export(metrics_batch())


async def test_many_exports_at_once_arrive() -> None:
    sink = HttpSink()
    async with exporting(sink) as exporter:
        await asyncio.gather(*(exporter.export(metrics_batch(count)) for count in range(1, 21)))
    assert len(sink.requests) == 20


async def test_a_server_without_a_path_for_profiles_gets_no_more_of_them() -> None:
    sink, own = answering(Response("", 404)), context("http")
    async with exporting(sink, own) as exporter:
        for _ in range(2):
            with pytest.raises(Unwanted, match=r"takes metrics and traces and logs, but no profiles \(404\)"):
                await exporter.export(profiles_batch())
        await exporter.export(metrics_batch())
    probes = ["/v1/metrics", "/v1/traces", "/v1/logs"]
    assert [request.path for request in sink.requests] == ["/v1development/profiles", *probes, "/v1/metrics"]
