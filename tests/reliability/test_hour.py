"""20,000 points a second through a collector with a queue on the disk: all arrive, and the costs do not grow."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import psutil
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, NumberDataPoint, ResourceMetrics
from opentelemetry.proto.metrics.v1.metrics_pb2 import ScopeMetrics as Scope

from otel_zernel.testing import until
from tests.collectors import collector
from tests.receivers.otlp.serving import call, gauge
from tests.reliability.odd_backends import serve_exports

POINTS = 200
"""Points in a request."""
REQUESTS = 100
"""Requests in a second."""
_UNIQUE = "request.number"
"""The gauge whose only point has the number of the request."""
_COMMON = gauge(POINTS - 1).SerializeToString()


@dataclass(frozen=True, slots=True)
class Sample:
    """The state at one moment."""

    seconds: float
    cpu_seconds: float
    """Of the collector, since its start."""
    rss_mib: float
    """Of the collector."""
    sent: int
    """Points in requests that were acknowledged."""
    received: int
    """Points that the backend has got."""


@dataclass
class Backend:
    """An OTLP server that counts points, and the requests that they came with."""

    points: int = 0
    times: bytearray = field(default_factory=bytearray)
    """How often each request arrived, by its number."""

    async def export(self, request: bytes, _: Any) -> bytes:
        for resource in MetricsData.FromString(request).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                self.points += len(metric.gauge.data_points)
                if metric.name == _UNIQUE:
                    self._check_off(metric.gauge.data_points[0].as_int)
        return b""

    def _check_off(self, number: int) -> None:
        self.times.extend(bytes(max(0, number + 1 - len(self.times))))
        self.times[number] += 1


def request(number: int) -> bytes:
    """A request of `POINTS` points with 8 attributes each; one point has the number instead."""
    unique = Metric(name=_UNIQUE, gauge=Gauge(data_points=[NumberDataPoint(as_int=number)]))
    more = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=[Scope(metrics=[unique])])])
    return _COMMON + more.SerializeToString()


@asynccontextmanager
async def durable_collector(folder: Path, port: int, backend: int) -> AsyncIterator[psutil.Process]:
    """A collector from OTLP/gRPC on `port` to that of `backend`, with a queue on the disk. Its log is in the folder."""
    queue = {"storage": "file_storage", "queue_size": 1_000_000, "sizer": "items", "batch": {}}
    exporter = {"endpoint": f"http://localhost:{backend}", "compression": "none", "sending_queue": queue}
    settings = {
        "extensions": {"file_storage": {"directory": str(folder / "storage"), "create_directory": True}},
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"localhost:{port}"}}}},
        "exporters": {"otlp_grpc": exporter},
        "service": {
            "extensions": ["file_storage"],
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["otlp_grpc"]}},
        },
    }
    async with collector(folder, settings, port) as running:
        yield running.process
        running.process.terminate()
        assert await running.ended() == 0, running.log


@dataclass
class Campaign:
    """Sends through a collector for some time, and takes samples meanwhile."""

    folder: Path
    seconds: int
    every: int
    """Seconds between two samples."""
    sent: int = 0
    """Acknowledged requests."""
    backend: Backend = field(default_factory=Backend)
    samples: list[Sample] = field(default_factory=list)

    async def run(self, port: int) -> None:
        """Raises if a request is not acknowledged."""
        async with (
            serve_exports(self.backend.export) as backend,
            durable_collector(self.folder, port, backend) as collector,
            grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        ):
            await asyncio.wait_for(channel.channel_ready(), 60)
            sampling = asyncio.create_task(self._take_samples(collector))
            try:
                await self._send(call(channel))
                await until(lambda: self.backend.points >= self.sent * POINTS or sampling.done(), within=60)
            finally:
                sampling.cancel()
            self._sample(self.seconds, collector)

    async def _send(self, export: Any) -> None:
        """Starts each request when it is due, whatever became of those before it."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.seconds * REQUESTS):
                await asyncio.sleep(max(0.0, start + number / REQUESTS - loop.time()))
                tasks.create_task(self._send_one(export, number))

    async def _send_one(self, export: Any, number: int) -> None:
        await export(request(number), timeout=60)
        self.sent += 1

    async def _take_samples(self, collector: psutil.Process) -> None:
        loop = asyncio.get_running_loop()
        start = loop.time()
        while True:
            self._sample(loop.time() - start, collector)
            await asyncio.sleep(start + len(self.samples) * self.every - loop.time())

    def _sample(self, seconds: float, collector: psutil.Process) -> None:
        cpu, rss = sum(collector.cpu_times()[:2]), collector.memory_info().rss / 2**20
        self.samples.append(Sample(seconds, cpu, rss, self.sent * POINTS, self.backend.points))
        lines = [f"{s.seconds:.0f},{s.cpu_seconds:.1f},{s.rss_mib:.1f},{s.sent},{s.received}\n" for s in self.samples]
        self.table.write_text("seconds,cpu_seconds,rss_mib,sent,received\n" + "".join(lines))

    @property
    def table(self) -> Path:
        """The samples as CSV, also while it runs."""
        return self.folder / "samples.csv"


TABLE = Path(__file__).parents[2] / "docs/development/soak/hour.csv"
MINUTE = 60
CPU_GROWTH, RSS_GROWTH = 1.2, 1.1
"""The most that the second half may take, as a multiple of the first. Other programs on the machine cost CPU time."""


async def test_twenty_thousand_points_a_second_all_arrive_once(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    campaign = Campaign(tmp_path, seconds=3, every=1)
    await campaign.run(unused_tcp_port_factory())
    check_arrivals(campaign)


@pytest.mark.soak
@pytest.mark.timeout(5400)
async def test_an_hour_at_twenty_thousand_points_a_second_takes_no_more_at_its_end(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    campaign = Campaign(tmp_path, seconds=60 * MINUTE, every=MINUTE)
    await campaign.run(unused_tcp_port_factory())
    TABLE.parent.mkdir(exist_ok=True)
    shutil.copy(campaign.table, TABLE)
    check_arrivals(campaign)
    steady = campaign.samples[1:]  # without the first minute
    middle = len(steady) // 2
    before, after = costs(steady[: middle + 1]), costs(steady[middle:])
    print(f"CPU seconds a minute: {before[0]:.2f}, then {after[0]:.2f}; MiB: {before[1]:.1f}, then {after[1]:.1f}")
    assert after[0] < before[0] * CPU_GROWTH
    assert after[1] < before[1] * RSS_GROWTH


def check_arrivals(campaign: Campaign) -> None:
    end = campaign.samples[-1]
    print(f"\n{campaign.seconds} s: {end.sent} points sent, {end.received} received")
    assert end.sent == campaign.seconds * REQUESTS * POINTS
    assert end.received == end.sent
    assert set(campaign.backend.times) == {1}, "each request arrived once"


def costs(samples: list[Sample]) -> tuple[float, float]:
    """The medians of the CPU seconds between two samples, and of the resident memory in MiB. A minute in which another
    program holds up the backend has more in the queue."""
    return median(b.cpu_seconds - a.cpu_seconds for a, b in pairwise(samples)), median(
        sample.rss_mib for sample in samples
    )
