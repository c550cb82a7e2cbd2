"""Texts that are not UTF-8 and a deep value in a request cost no other point, whatever stands in the pipeline."""

from collections.abc import Callable
from pathlib import Path

import pytest

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from tests.collectors import collector
from tests.exporters.otlp.peers import GrpcSink
from tests.receivers.damaged_texts import POINTS, check_readers, damaged_metrics, pipelines, readers
from tests.reliability.senders import GrpcSender, HttpSender


@pytest.mark.parametrize("sender", [GrpcSender, HttpSender])
async def test_every_point_arrives_everywhere(
    sender: Callable[[int], GrpcSender | HttpSender], tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    port, page = unused_tcp_port_factory(), unused_tcp_port_factory()
    protocol = "grpc" if sender is GrpcSender else "http"
    sink = GrpcSink()
    async with sink.serve() as backend:
        settings = {
            "receivers": {"otlp": {"protocols": {protocol: {"endpoint": f"127.0.0.1:{port}"}}}},
            **readers(tmp_path, page),
            "service": {"pipelines": pipelines("otlp", "otlp_grpc")},
        }
        settings["exporters"]["otlp_grpc"] = {"endpoint": f"http://127.0.0.1:{backend}", "compression": "none"}
        encoded = damaged_metrics()
        async with collector(tmp_path, settings, port, page):
            connection = sender(port)
            assert connection.send(encoded)
            connection.close()
            await until(lambda: bool(sink.requests), within=60)
            await check_readers(tmp_path, page)
        log = (tmp_path / "log").read_text()
    assert [Batch.from_bytes(metrics=request).point_count for request in sink.requests] == [POINTS]
    assert "Received a text that is not UTF-8, a value that is nested too deeply, or a damaged attribute" in log
    assert "Dropped" not in log
