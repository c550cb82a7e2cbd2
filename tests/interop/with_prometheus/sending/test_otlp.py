"""Prometheus 3 with its defaults takes every point by OTLP, although some components report later than others."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel.component import Extension
from otel_zernel.engine.delivery import Delivery
from otel_zernel.testing import make_context, until
from otel_zernel_exporters.otlp import OtlpHttpExporter
from tests.core.engine.journals import MemoryStorage
from tests.core.engine.wiring import Counting
from tests.interop.prometheus import Prometheus, configured, find_prometheus_3
from tests.interop.with_prometheus.test_remote_write import now
from tests.otlp import SECOND, data, exponential, gauge, histogram, number, total

TRAIN = {"service.name": "train", "service.instance.id": "node/812", "host.name": "node", "k8s.pod.name": "train-0"}
HOST = {"service.name": "otel-zernel", "service.instance.id": "node", "host.name": "node"}
NAMELESS = {"host.name": "node"}
BARE = {"service.name": "bare", "service.instance.id": "node/7"}


@asynccontextmanager
async def receiving(folder: Path, port: int, **config: Any) -> AsyncIterator[Prometheus]:
    """A Prometheus that takes OTLP and has no other settings."""
    more = "--web.enable-otlp-receiver"
    async with configured(find_prometheus_3(), folder, port, [], (), more, more_config=config) as prometheus:
        yield prometheus


@asynccontextmanager
async def delivering(port: int, disk: MemoryStorage | None = None, **queue: Any) -> AsyncIterator[Delivery]:
    """Ten consumers that send to this port. At the end, nothing may be lost."""
    settings = OtlpHttpExporter.Config.model_validate(
        {
            "endpoint": f"http://127.0.0.1:{port}/api/v1/otlp",
            "sending_queue": {"queue_size": 100_000, **queue},
            "retry_on_failure": {"initial_interval": "200ms", "max_interval": "1s"},
        }
    )
    extensions: dict[str, Extension] = {"storage": disk} if disk else {}
    exporter = OtlpHttpExporter(settings, make_context("exporters", "otlp_http", extensions=extensions))
    async with Delivery(exporter, Counting().instruments.exporter("otlp_http")) as delivery:
        yield delivery
    assert delivery.losses == {}


async def drained(delivery: Delivery) -> None:
    """Returns when everything is delivered."""
    await until(lambda: not (delivery.queue or delivery.undelivered().total or delivery.queue.stored().total), 120)


def batches(begin: int, seconds: int, seed: int) -> list[MetricsData]:
    """What components of one node emit, in the order of the queue: each is late by a time of its own."""
    drawn = random.Random(seed)
    made: list[tuple[float, MetricsData]] = []
    for resource in (TRAIN, HOST, NAMELESS, BARE):
        for component in ("receiver", "phases", "percentiles", "bursts"):
            lateness = drawn.choice((0.0, 0.3, 2.0, 12.0))
            for second in range(seconds):
                offsets = [0, 250, 500, 750] if component == "bursts" else sorted(drawn.sample(range(250), 2))
                at = [begin + second * SECOND + offset * 1_000_000 for offset in offsets]
                name = f"{resource.get('service.name', 'nameless').replace('-', '_')}_{component}"
                message = data(
                    gauge(f"{name}_g", *(number(float(second), time=time) for time in at)),
                    total(f"{name}_steps", *(number(second, time=time, start_time_unix_nano=begin) for time in at)),
                    histogram(f"{name}_wait", [0.1, 1.0], [second, 2, 1], 1.0, time=at[-1]),
                    exponential(f"{name}_step", 3, (0, [1, 2]), sum_=1.0, time=at[-1]),
                    resource=resource,
                    scope=component,
                )
                made.append((second + lateness, message))
    return [message for _, message in sorted(made, key=lambda pair: pair[0])]


async def stored(prometheus: Prometheus) -> Counter[str]:
    """The number of stored samples of each metric."""
    counts: Counter[str] = Counter()
    for series in (await prometheus.get("query", query="{__name__=~'.+', __name__!='target_info'}[1h]"))["result"]:
        counts[series["metric"]["__name__"]] += len(series.get("values", ())) + len(series.get("histograms", ()))
    return counts


def expected(messages: list[MetricsData]) -> Counter[str]:
    """The number of samples that Prometheus makes of the messages, by metric."""
    counts: Counter[str] = Counter()
    for message in messages:
        for metric in message.resource_metrics[0].scope_metrics[0].metrics:
            match metric.WhichOneof("data"):
                case "gauge":
                    counts[metric.name] += len(metric.gauge.data_points)
                case "sum":
                    counts[f"{metric.name}_total"] += len(metric.sum.data_points)
                case "histogram":
                    counts[f"{metric.name}_seconds_bucket"] += 3
                    counts[f"{metric.name}_seconds_sum"] += 1
                    counts[f"{metric.name}_seconds_count"] += 1
                case _:
                    counts[f"{metric.name}_seconds"] += 1
    return counts


@pytest.mark.parametrize("batching", [None, {"min_size": 100, "flush_timeout": "50ms"}], ids=["single", "joined"])
@pytest.mark.parametrize("seed", range(3))
async def test_no_mix_of_late_components_loses_a_point(
    tmp_path: Path, unused_tcp_port: int, seed: int, batching: dict[str, Any] | None
) -> None:
    begin = now() - 60 * SECOND
    messages = batches(begin, 20, seed)
    async with receiving(tmp_path, unused_tcp_port) as prometheus:
        async with delivering(unused_tcp_port, batch=batching) as delivery:
            for message in messages:
                delivery.queue.put(Batch(message))
                await asyncio.sleep(0)
            await drained(delivery)
        assert await stored(prometheus) == expected(messages)
        joined = 'train_receiver_g * on (job, instance) group_left (k8s_pod_name) target_info{job="train"}'
        range_of = {"start": f"{begin // SECOND + 5}", "end": f"{begin // SECOND + 15}", "step": "5"}
        [series] = (await prometheus.get("query_range", query=joined, **range_of))["result"]
        assert series["metric"]["k8s_pod_name"] == "train-0"
        assert len(series["values"]) == 3
        assert len(await prometheus.series('last_over_time(target_info{job="train"}[1h])')) == 1


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
async def test_an_outage_loses_nothing_with_ten_consumers(tmp_path: Path, unused_tcp_port: int, durable: bool) -> None:
    """With a durable queue, the collector restarts in the outage, too."""
    messages = batches(now() - 60 * SECOND, 20, seed=1)
    third = len(messages) // 3
    disk = MemoryStorage() if durable else None
    queue = {"storage": "storage"} if durable else {}
    async with AsyncExitStack() as stack:
        delivery = await stack.enter_async_context(delivering(unused_tcp_port, disk, **queue))
        async with receiving(tmp_path, unused_tcp_port):
            for message in messages[:third]:
                delivery.queue.put(Batch(message))
            await drained(delivery)
        for message in messages[third : 2 * third]:
            delivery.queue.put(Batch(message))
            await asyncio.sleep(0)
        await until(lambda: delivery.problem)
        if durable:
            await stack.aclose()
            delivery = await stack.enter_async_context(delivering(unused_tcp_port, disk, **queue))
        async with receiving(tmp_path, unused_tcp_port) as prometheus:
            for message in messages[2 * third :]:
                delivery.queue.put(Batch(message))
                await asyncio.sleep(0)
            await drained(delivery)
            assert await stored(prometheus) == expected(messages)


async def test_a_window_for_late_points_keeps_promoted_attributes_on_every_series(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    config = {
        "otlp": {"promote_resource_attributes": ["k8s.pod.name"]},
        "storage": {"tsdb": {"out_of_order_time_window": "30m"}},
    }
    messages = batches(now() - 60 * SECOND, 20, seed=0)
    async with receiving(tmp_path, unused_tcp_port, **config) as prometheus:
        async with delivering(unused_tcp_port) as delivery:
            for message in messages:
                delivery.queue.put(Batch(message))
                await asyncio.sleep(0)
            await drained(delivery)
        assert await stored(prometheus) == expected(messages)
        query = '{job="train", __name__!="target_info"}[1h]'
        series = (await prometheus.get("query", query=query))["result"]
        assert {one["metric"].get("k8s_pod_name") for one in series} == {"train-0"}
