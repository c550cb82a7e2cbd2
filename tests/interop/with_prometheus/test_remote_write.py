"""Debian's Prometheus takes every kind of metric by remote write, with its exact values, and loses nothing."""

import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Exemplar, MetricsData

from otel_zernel.batch import Batch
from otel_zernel.errors import Retryable
from tests.exporters.prometheusremotewrite.exporting import exporter
from tests.interop.prometheus import Prometheus, configured
from tests.otlp import SECOND, data, ended, exponential, gauge, histogram, number, summary, total

Peer = Callable[[str], Path]
FEATURES = "exemplar-storage", "native-histograms"
SERVICE = {"service.name": "llm", "service.instance.id": "node-1", "host.name": "node-1", "hw.vendor": "NVIDIA"}


@asynccontextmanager
async def receiving(
    program: Path, folder: Path, port: int, features: tuple[str, ...] = FEATURES
) -> AsyncIterator[Prometheus]:
    """A Prometheus that takes remote write."""
    async with configured(program, folder, port, [], features, "--web.enable-remote-write-receiver") as prometheus:
        yield prometheus


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}/api/v1/write"


def now() -> int:
    """This second, in ns."""
    return time.time_ns() // SECOND * SECOND


async def written(port: int, *messages: MetricsData, **config: Any) -> dict[str, int]:
    """Writes the batches; returns the losses by reason."""
    async with exporter(url(port), **config) as (one, dropped):
        for message in messages:
            await one.export(Batch(message))
    return dict(dropped.counts)


async def over_time(prometheus: Prometheus, series: str) -> list[float]:
    """The stored values of the only series in the last hour. A staleness marker is not one of them."""
    found = (await prometheus.get("query", query=f"{series}[1h]"))["result"]
    return [float(value) for _, value in found[0]["values"]] if found else []


async def test_every_kind_of_metric_arrives_with_its_values(peer: Peer, tmp_path: Path, unused_tcp_port: int) -> None:
    at = now()
    trace = Exemplar(as_double=0.2, trace_id=bytes(range(16)), time_unix_nano=at)
    message = data(
        gauge("temperature", number(61.25, {"gpu": 'a"\\\n', "größe": "groß"}, time=at), unit="Cel"),
        gauge("unknown", number(math.nan, time=at)),
        total("steps", number(2**53, time=at, start_time_unix_nano=at - SECOND)),
        total("open", number(-3, time=at), monotonic=False),
        histogram("wait", [0.1, 0.5, 1.0], [3, 2, 1, 1], 4.5, time=at, exemplars=(trace,)),
        summary("latency", {0: 1e-6, 0.99: 2e-5, 1: 0.5}, 1000, 0.75, time=at),
        exponential("step", 3, (-4, [1, 0, 5, 2]), (2, [1]), zero_count=1, sum_=7.25, time=at),
        resource=SERVICE,
        scope="s",
    )
    async with receiving(peer("prometheus"), tmp_path, unused_tcp_port) as prometheus:
        assert await written(unused_tcp_port, message) == {}
        [(labels, value)] = await prometheus.series("temperature_celsius")
        assert value == 61.25
        assert labels == {
            "__name__": "temperature_celsius",
            "gpu": 'a"\\\n',
            "gr_e": "groß",
            "host_name": "node-1",
            "job": "llm",
            "instance": "node-1",
            "otel_scope_name": "s",
        }
        assert math.isnan(await prometheus.value("unknown"))
        assert await prometheus.value("steps_total") == 2**53
        assert await prometheus.value("open") == -3
        buckets = {labels["le"]: value for labels, value in await prometheus.series("wait_seconds_bucket")}
        assert buckets == {"0.1": 3, "0.5": 5, "1.0": 6, "+Inf": 7}
        assert await prometheus.value("wait_seconds_sum") == 4.5
        assert await prometheus.value("wait_seconds_count") == 7
        assert await prometheus.value('latency_seconds{quantile="0.99"}') == 2e-5
        assert await prometheus.value("latency_seconds_count") == 1000
        assert await prometheus.value("histogram_count(step_seconds)") == 10
        assert await prometheus.value("histogram_sum(step_seconds)") == 7.25
        assert await prometheus.value("histogram_fraction(-0.0000001, 0.0000001, step_seconds)") == pytest.approx(0.1)
        assert await prometheus.value('target_info{hw_vendor="NVIDIA"}') == 1
        exemplars = await prometheus.get("query_exemplars", query="{__name__=~'.+'}", start="0", end="9999999999")
        assert [exemplar["exemplars"][0]["labels"]["trace_id"] for exemplar in exemplars] == [bytes(range(16)).hex()]


async def test_a_prometheus_without_native_histograms_gets_classic_ones(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    message = data(
        exponential("step", 3, (-4, [1, 0, 5, 2]), sum_=7.25, time=now()), gauge("g", number(1.0, time=now()))
    )
    async with receiving(peer("prometheus"), tmp_path, unused_tcp_port, ("exemplar-storage",)) as prometheus:
        assert await written(unused_tcp_port, message) == {}
        assert await prometheus.value("step_seconds_count") == 8
        assert await prometheus.value('step_seconds_bucket{le="+Inf"}') == 8
        assert await prometheus.value("g") == 1


async def test_one_old_sample_costs_one_sample(peer: Peer, tmp_path: Path, unused_tcp_port: int) -> None:
    at = now()
    gpus = [{"gpu": str(index)} for index in range(100)]
    first = data(gauge("g", number(7.0, gpus[40], time=at)))
    second = data(gauge("g", *(number(1.0, gpu, time=at - 5 * SECOND) for gpu in gpus)))
    async with receiving(peer("prometheus"), tmp_path, unused_tcp_port) as prometheus:
        assert await written(unused_tcp_port, first) == {}
        assert await written(unused_tcp_port, second) == {"out_of_order": 1}
        assert await prometheus.value("count(g)") == 100
        assert await prometheus.value('g{gpu="40"}') == 7
        assert await prometheus.value("sum(g)") == 99 + 7


async def test_a_series_ends_at_once(peer: Peer, tmp_path: Path, unused_tcp_port: int) -> None:
    at = now()
    before = data(gauge("g", number(1.0, time=at - SECOND)), histogram("h", [1.0], [1, 1], 2.0, time=at - SECOND))
    after = data(gauge("g", ended(time=at)), histogram("h", [1.0], [1, 1], 2.0, time=at))
    after.resource_metrics[0].scope_metrics[0].metrics[1].histogram.data_points[0].flags = 1
    async with receiving(peer("prometheus"), tmp_path, unused_tcp_port) as prometheus:
        async with exporter(url(unused_tcp_port)) as (one, _):
            await one.export(Batch(before))
            assert len(await prometheus.series("{__name__=~'g|h_.+'}")) == 5
            await one.export(Batch(after))
        assert await prometheus.series("{__name__=~'g|h_.+'}") == []
        assert await over_time(prometheus, "g") == [1.0]


async def test_a_restart_of_prometheus_loses_nothing_and_keeps_the_order(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    at = now() - 60 * SECOND
    messages = [
        data(gauge("g", *(number(float(second), {"gpu": str(gpu)}, time=at + second * SECOND) for gpu in range(20))))
        for second in range(30)
    ]
    program = peer("prometheus")
    async with exporter(url(unused_tcp_port)) as (one, dropped):
        async with receiving(program, tmp_path, unused_tcp_port):
            for message in messages[:15]:
                await one.export(Batch(message))
        waiting = Batch(messages[15])
        with pytest.raises(Retryable, match="nothing listens"):
            await one.export(waiting)
        async with receiving(program, tmp_path, unused_tcp_port) as prometheus:
            for batch in (waiting, *map(Batch, messages[16:])):
                await one.export(batch)
            for gpu in (0, 19):
                assert await over_time(prometheus, f'g{{gpu="{gpu}"}}') == [*map(float, range(30))]
            assert await prometheus.value("count(g)") == 20
    assert dropped.counts == {}


async def test_samples_of_one_batch_in_any_order_arrive_in_order(
    peer: Peer, tmp_path: Path, unused_tcp_port: int
) -> None:
    at = now() - 60 * SECOND
    order = [3, 0, 4, 1, 2]
    message = data(gauge("g", *(number(float(second), time=at + second * SECOND) for second in order)))
    async with receiving(peer("prometheus"), tmp_path, unused_tcp_port) as prometheus:
        assert await written(unused_tcp_port, message) == {}
        assert await over_time(prometheus, "g") == [0.0, 1.0, 2.0, 3.0, 4.0]


async def test_many_requests_at_the_same_time_arrive_whole(peer: Peer, tmp_path: Path, unused_tcp_port: int) -> None:
    at = now() - 60 * SECOND
    async with receiving(peer("prometheus"), tmp_path, unused_tcp_port) as prometheus:
        async with exporter(url(unused_tcp_port), max_batch_size_bytes=20_000) as (one, dropped):
            for second in range(5):
                points = [number(float(second), {"gpu": str(i)}, time=at + second * SECOND) for i in range(2000)]
                await one.export(Batch(data(gauge("g", *points))))
        assert await prometheus.value("count(g)") == 2000
        assert await prometheus.value("sum(count_over_time(g[1h]))") == 10_000
        assert dropped.counts == {}
