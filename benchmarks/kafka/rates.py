"""Messages and MB per second: the exporter and the receiver, and loops of the client without them.

The loops do no more than the client needs: they neither check nor count OTLP, and commit by time. A message has 1 kB or
50 kB, as a batch of 360 points has.
"""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from confluent_kafka import Consumer, Producer
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from benchmarks import BenchmarkRow
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context, until
from otel_zernel_exporters.kafka import KafkaExporter
from otel_zernel_receivers.kafka import KafkaReceiver
from otel_zernel_receivers.kafka.declared import PARTITION_START
from tests.core.parts import batch_of
from tests.libraries.clients.kafka.separate_cluster import cluster

TOPIC = "otlp_metrics"
PARTITIONS = 8
CONSUMERS = 10
"""Exports at the same time: the default of `num_consumers`."""
SMALL, LARGE = 34, 1700
"""Points of messages of 1 kB and 50 kB."""
MANY_PARTITIONS = 500


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def produced(brokers: list[str], value: bytes, count: int) -> tuple[float, float]:
    """Seconds and CPU seconds of a bare producer for so many messages, with the settings of the exporter."""
    producer = Producer(
        {"bootstrap.servers": ",".join(brokers), "acks": -1, "enable.idempotence": True, "linger.ms": 10}
    )
    producer.list_topics(timeout=10)
    started, cpu = perf_counter(), process_time()
    for number in range(count):
        producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=lambda *_: None)
        producer.poll(0)
    producer.flush()
    return perf_counter() - started, process_time() - cpu


async def exported(brokers: list[str], value: bytes, points: int, count: int) -> tuple[float, float]:
    """The same of the exporter, with `CONSUMERS` exports at a time."""
    options = {"brokers": brokers, "timeout": "60s", "record_partitioner": {"round_robin": None}}
    config = KafkaExporter.Config.model_validate(options)
    left = count

    async def consume(exporter: KafkaExporter) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await exporter.export(Batch.encoded("metrics", value, points))

    async with KafkaExporter(config, make_context("exporters", "kafka", clock=SystemClock())) as exporter:
        await exporter.export(Batch.encoded("metrics", value, points))
        started, cpu = perf_counter(), process_time()
        await asyncio.gather(*(consume(exporter) for _ in range(CONSUMERS)))
        return perf_counter() - started, process_time() - cpu


def consumed(brokers: list[str], count: int) -> tuple[float, float]:
    """Seconds and CPU seconds of a bare consumer from its first message on."""
    consumer = Consumer({"bootstrap.servers": ",".join(brokers), "group.id": "bare", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    seen, started, cpu = 0, 0.0, 0.0
    while seen < count:
        consume = consumer.consume(500, 0.1)
        if consume and not seen:
            started, cpu = perf_counter(), process_time()
        seen += sum(message.error() is None for message in consume)
    elapsed = perf_counter() - started, process_time() - cpu
    consumer.close()
    return elapsed


async def received(brokers: list[str], points: int) -> tuple[float, float]:
    """The same of the receiver, with pipelines that take everything."""
    options = {"brokers": brokers, "initial_offset": "earliest"}
    config = KafkaReceiver.Config.model_validate(options)
    seen, started, cpu = 0, 0.0, 0.0
    done = asyncio.Event()

    async def emit(batch: Batch, *, transport: str = "") -> None:
        nonlocal seen, started, cpu
        if not seen:
            started, cpu = perf_counter(), process_time()
        seen += batch.item_count
        if seen >= points:
            done.set()

    running = asyncio.create_task(
        KafkaReceiver(config, make_context("receivers", "kafka", clock=SystemClock())).run(emit)
    )
    await done.wait()
    elapsed = perf_counter() - started, process_time() - cpu
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return elapsed


async def idle_memory(brokers: list[str], topic: str, partitions: int) -> int:
    """Bytes that a receiver takes once it has all partitions of the topic."""
    reader = InMemoryMetricReader()
    context = make_context(
        "receivers", "kafka", clock=SystemClock(), meter=MeterProvider([reader]).get_meter("benchmark")
    )
    options = {"brokers": brokers, "metrics": {"topics": [topic]}, "group_id": topic}
    gc.collect()
    before = resident()

    async def emit(batch: Batch, *, transport: str = "") -> None:
        return

    running = asyncio.create_task(KafkaReceiver(KafkaReceiver.Config.model_validate(options), context).run(emit))
    await until(lambda: _assigned(reader) == partitions)
    await asyncio.sleep(2)  # until the first fetches
    after = resident()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return after - before


def _assigned(reader: InMemoryMetricReader) -> int:
    data: Any = reader.get_metrics_data()
    return sum(
        point.value
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == PARTITION_START.name
        for point in metric.data.data_points
    )


def run() -> Iterator[BenchmarkRow]:
    """The rows of `make bench`."""
    for points, count, size in ((SMALL, 20_000, "1 kB"), (LARGE, 600, "50 kB")):
        value = batch_of(*(1.0,) * points).bytes_of("metrics")
        with cluster(**{TOPIC: PARTITIONS}) as brokers:
            bare = produced(brokers, value, count)
            ours = asyncio.run(exported(brokers, value, points, count))
        yield _row(f"kafka exporter, messages of {size}", ours, bare, count, len(value))
        with cluster(**{TOPIC: PARTITIONS}) as brokers:
            produced(brokers, value, count)
            bare = consumed(brokers, count)
            ours = asyncio.run(received(brokers, points * count))
        yield _row(f"kafka receiver, messages of {size}", ours, bare, count, len(value))
    with cluster(few=1, many=MANY_PARTITIONS) as brokers:
        asyncio.run(idle_memory(brokers, "few", 1))  # what every further client shares
        few = asyncio.run(idle_memory(brokers, "few", 1))
        many = asyncio.run(idle_memory(brokers, "many", MANY_PARTITIONS))
    each = (many - few) / MANY_PARTITIONS / 1000
    yield BenchmarkRow("kafka receiver, memory of a partition", f"{each:.1f} kB")


def _row(name: str, ours: tuple[float, float], bare: tuple[float, float], count: int, size: int) -> BenchmarkRow:
    rate = f"{count / ours[0]:,.0f}/s, {count * size / ours[0] / 1e6:.0f} MB/s, {ours[1] / count * 1e6:.0f} us CPU"
    return BenchmarkRow(name, rate, f"bare loop: {count / bare[0]:,.0f}/s, {bare[1] / count * 1e6:.0f} us CPU")
