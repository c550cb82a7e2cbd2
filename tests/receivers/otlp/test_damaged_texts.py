"""One text that is not UTF-8, or one deep value, in a request costs no other point, whatever stands in the pipeline."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from tests.exporters.otlp.collectors import collector
from tests.exporters.otlp.peers import GrpcSink
from tests.reliability.senders import GrpcSender, HttpSender

POINTS = 100
BAD = b"\xc3(\xfe"


def request(depth: int) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "trainer"
    scope = resource.scope_metrics.add()
    for number in range(POINTS):
        point = scope.metrics.add(name=f"m{number}").gauge.data_points.add(as_double=number, time_unix_nano=1 << 60)
        value = point.attributes.add(key="command").value
        for _ in range(depth if number == POINTS // 2 else 0):
            value = value.array_value.values.add()
        value.string_value = "XYZ" if number == POINTS // 2 else "ok"
    return request


def series(page: str) -> int:
    return sum(line.startswith("m") for line in page.splitlines())


@pytest.mark.parametrize("sender", [GrpcSender, HttpSender])
@pytest.mark.parametrize(("text", "depth"), [(BAD, 0), (b"XYZ", 200)], ids=["text", "deep value"])
async def test_every_point_arrives_everywhere(
    sender: Callable[[int], GrpcSender | HttpSender],
    text: bytes,
    depth: int,
    tmp_path: Path,
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    import httpx

    port, page = unused_tcp_port_factory(), unused_tcp_port_factory()
    protocol = "grpc" if sender is GrpcSender else "http"
    sink = GrpcSink()
    async with sink.serve() as backend:
        settings = {
            "receivers": {"otlp": {"protocols": {protocol: {"endpoint": f"127.0.0.1:{port}"}}}},
            "processors": {
                "filter": {"metrics": {"datapoint": ['attributes["n"] == 3']}},
                "attributes": {"actions": [{"key": "x", "value": "y", "action": "upsert"}]},
            },
            "exporters": {
                "file": {"path": str(tmp_path / "plain.json")},
                "file/filtered": {"path": str(tmp_path / "filtered.json")},
                "file/changed": {"path": str(tmp_path / "changed.json")},
                "prometheus": {"endpoint": f"127.0.0.1:{page}", "metric_expiration": "1000000h"},
                "otlp_grpc": {"endpoint": f"http://127.0.0.1:{backend}", "compression": "none"},
            },
            "service": {
                "pipelines": {
                    "m": {"receivers": ["otlp"], "exporters": ["file", "prometheus", "otlp_grpc"]},
                    "f": {"receivers": ["otlp"], "processors": ["filter"], "exporters": ["file/filtered"]},
                    "a": {"receivers": ["otlp"], "processors": ["attributes"], "exporters": ["file/changed"]},
                }
            },
        }
        encoded = request(depth).SerializeToString().replace(b"XYZ", text)
        async with collector(tmp_path, settings, port, page):
            connection = sender(port)
            assert connection.send(encoded)
            connection.close()
            await until(lambda: bool(sink.requests), within=60)
            async with httpx.AsyncClient() as client:
                assert series((await client.get(f"http://127.0.0.1:{page}/metrics")).text) == POINTS
        log = (tmp_path / "log").read_text()
    assert sink.requests == [encoded]  # the very bytes of the sender
    assert Batch.from_bytes(metrics=encoded).point_count == POINTS
    for name in ("plain", "filtered", "changed"):
        (line,) = (tmp_path / f"{name}.json").read_text().splitlines()
        assert len(json.loads(line)["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]) == POINTS
        assert ("\ufffd(\ufffd" in line) == (text == BAD)
        assert ("nested more than" in line) == (depth > 0)
    assert "Received a text that is not UTF-8, a value that is nested too deeply, or a damaged attribute" in log
    assert "Dropped" not in log
