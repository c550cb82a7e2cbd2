"""A whole collector with the exporter: what it reads is in the store, row by row, also after kills."""

import asyncio
import signal
import sys
from pathlib import Path

import httpx
from google.protobuf import json_format
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.collectors import ROOT, finite_run
from tests.libraries.store.given import flat, gauges, points_in, read_all, sqlite_config
from tests.postgres import PostgresServer, new_schema, postgres_server

CSV = """
receivers:
  csv: {{files: [{root}/examples/training_node.csv], loop: false, interval: 0s, batch_size: 500}}
exporters:
  file: {{path: {folder}/all.json}}
  sql: {{url: "{url}", schema_name: {schema}, connect_timeout: 60s}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [csv], exporters: [file, sql]}}}}
"""
QUEUED = """
receivers:
  otlp: {{protocols: {{http: {{endpoint: "localhost:{port}"}}}}}}
exporters:
  sql:
    url: "{url}"
    sending_queue: {{storage: file_storage}}
    retry_on_failure: {{initial_interval: 100ms, max_elapsed_time: 0s}}
extensions:
  file_storage: {{directory: "{folder}/queue", create_directory: true}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [sql]}}}}
"""


def command(text: str, folder: Path) -> list[str]:
    path = folder / "config.yaml"
    path.write_text(text)
    return [sys.executable, "-m", "otel_zernel", "run", "--config", str(path)]


def exported(path: Path) -> list[MetricsData]:
    """The content of the file exporter's file."""
    lines = path.read_text("utf-8").splitlines()
    return [json_format.Parse(line, MetricsData()) for line in lines]


async def every_row_is_there(settings: WritableStoreConfig, folder: Path) -> None:
    names = {"root": ROOT, "folder": folder, "url": settings.url, "schema": settings.schema_name}
    for _ in range(2):  # the second time, every point is there already
        (folder / "config.yaml").write_text(CSV.format(**names))
        await asyncio.to_thread(finite_run, folder / "config.yaml")
    given = flat(exported(folder / "all.json"))
    assert len(given) == 3968
    assert flat(batch.metrics for batch in await read_all(settings, size=1000)) == given


async def test_every_row_of_a_file_is_in_sqlite(tmp_path: Path) -> None:
    await every_row_is_there(sqlite_config(tmp_path), tmp_path)


async def test_every_row_of_a_file_is_in_postgresql(tmp_path: Path) -> None:
    with postgres_server() as server:
        await every_row_is_there(on(server), tmp_path)


def on(server: PostgresServer) -> WritableStoreConfig:
    return WritableStoreConfig.model_validate(
        {"url": server.url(), "schema_name": new_schema(), "connect_timeout": "60s"}
    )


async def test_after_kills_every_acknowledged_point_is_stored_once(tmp_path: Path, unused_tcp_port: int) -> None:
    """tests/soak/test_store.py has a hundred kills, also of PostgreSQL."""
    settings, kills = sqlite_config(tmp_path, connect_timeout="60s"), 3
    run = command(QUEUED.format(port=unused_tcp_port, folder=tmp_path, url=settings.url), tmp_path)
    acknowledged = 0
    async with httpx.AsyncClient(trust_env=False) as client:
        for kill in range(kills + 1):
            collector = await asyncio.create_subprocess_exec(*run, cwd=ROOT)
            enough = acknowledged + 5 + kill % 7
            while acknowledged < enough:
                body = gauges(20, times=2, first=2 * acknowledged).bytes_of("metrics")
                try:
                    answer = await client.post(
                        f"http://localhost:{unused_tcp_port}/v1/metrics",
                        content=body,
                        headers={"content-type": "application/x-protobuf"},
                    )
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                    continue
                acknowledged += answer.status_code == 200
            if kill == kills:  # a busy machine may need longer than the time for a stop
                while await points_in(settings) < 40 * acknowledged:  # noqa: ASYNC110  # another process stores them
                    await asyncio.sleep(0.1)
            collector.send_signal(signal.SIGKILL if kill < kills else signal.SIGTERM)
            await collector.wait()
    expected = [gauges(20, times=2, first=2 * number).metrics for number in range(acknowledged)]
    stored = flat(batch.metrics for batch in await read_all(settings, size=1000))
    missing = flat(expected).keys() - stored.keys()
    assert not missing
    assert {key: stored[key] for key in flat(expected)} == flat(expected)
    unacknowledged = len(stored) - 40 * acknowledged
    assert 0 <= unacknowledged <= 40  # the one that was in the air at a kill has been sent again since
    assert await points_in(settings) == len(stored)
