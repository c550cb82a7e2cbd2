"""Real collectors for the tests of the OTLP exporters, and the totals that their backend sees."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import yaml
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value
from tests.receivers.otlp.serving import call


@asynccontextmanager
async def collector(
    folder: Path, settings: Mapping[str, Any], *ports: int
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running collector that listens on these ports. It ends by SIGTERM, unless the test has ended it."""
    folder.mkdir(exist_ok=True)  # noqa: ASYNC240  # a moment, before anything runs
    config = folder / "config.yaml"
    service = {"telemetry": {"metrics": {"level": "none"}}, **settings["service"]}
    config.write_text(yaml.safe_dump({**settings, "service": service}))
    command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(config)]
    with (folder / "log").open("a") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        for port in ports:
            await listening(port, process, folder / "log")
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    text = (folder / "log").read_text()
    assert "Traceback" not in text, text


async def listening(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    """Waits until the process accepts connections. Raises an error with its log if it ends."""
    async with asyncio.timeout(60):
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
    raise RuntimeError(await asyncio.to_thread(log.read_text))


def gateway(port: int, exporter: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The settings of a collector with an otlp receiver and one OTLP exporter, which retries at once."""
    retry = {"initial_interval": "50ms", "max_interval": "200ms", "max_elapsed_time": "0s"}
    [(id_, options)] = exporter.items()
    return {
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {id_: {"compression": "none", "retry_on_failure": retry, **options}},
        **{key: value for key, value in more.items() if key != "extensions"},
        "extensions": more.get("extensions", {}),
        "service": {
            "extensions": list(more.get("extensions", {})),
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": [id_]}},
        },
    }


def request(*metrics: Metric) -> bytes:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.extend(metrics)
    return data.SerializeToString()


async def send(port: int, *requests: bytes) -> None:
    """Sends the requests one after another. Returns when all are acknowledged."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        for one in requests:
            await call(channel)(one, timeout=60)


def metrics_in(requests: Iterable[bytes]) -> list[Metric]:
    return [
        metric
        for one in requests
        for resource in MetricsData.FromString(one).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]


def increase(requests: Iterable[bytes], name: str) -> float:
    """The total that a backend derives from the cumulative sums of this name: the increases of all series.

    A new start time, or a decrease, is a reset.
    """
    series: dict[str, list[tuple[int, int, float]]] = {}
    for metric in metrics_in(requests):
        if metric.name == name:
            assert metric.sum.aggregation_temporality == 2
            for point in points(metric):
                if not has_no_value(point):
                    value = point.as_double or point.as_int
                    at = point.time_unix_nano, point.start_time_unix_nano, value
                    series.setdefault(str(point.attributes), []).append(at)
    total = 0.0
    for found in series.values():
        before: tuple[int, float] = (0, 0.0)
        for _, start, value in sorted(found):
            total += value - before[1] if start == before[0] and value >= before[1] else value
            before = start, value
    return total
