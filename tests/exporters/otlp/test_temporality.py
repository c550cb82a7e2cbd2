"""Backends get the temporality that they accept, by real collectors: nothing counts twice, nothing is lost unseen."""

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import (
    ExplicitBucketHistogramAggregation,
    ExponentialBucketHistogramAggregation,
    View,
)
from starlette.responses import Response

from otel_zernel.batch import points
from otel_zernel.testing import until
from tests.collectors import collector
from tests.exporters.otlp.collectors import gateway, increase, request, send, sent
from tests.exporters.otlp.peers import GrpcSink, HttpSink, metrics_batch
from tests.libraries.histograms.temporality.running import CUMULATIVE, DELTA, sum_of

Port = Callable[[], int]


def deltas(first: int, end: int) -> list[bytes]:
    """Requests with the value 1 for each of two GPUs, one for each 10 s."""
    return [
        request(*(sum_of([(10 * n, 10 * n + 10, 1)], temporality=DELTA, gpu=gpu) for gpu in "01"))
        for n in range(first, end)
    ]


async def test_a_retried_request_counts_once(tmp_path: Path, unused_tcp_port_factory: Port) -> None:
    sink, port = HttpSink(), unused_tcp_port_factory()
    async with sink.serve() as url:
        sink.answers.extend(Response(status_code=503) for _ in range(5))
        async with collector(tmp_path, gateway(port, {"otlp_http": {"endpoint": url}}), port):
            await send(port, *deltas(0, 20))
            await until(lambda: increase([one.body for one in sink.requests], "requests") == 40, within=60)
    assert all(metric.sum.aggregation_temporality == CUMULATIVE for metric in sent(_bodies(sink)))


def _bodies(sink: HttpSink) -> list[bytes]:
    return [one.body for one in sink.requests]


async def test_requests_without_deltas_are_forwarded_as_the_bytes_that_arrived(
    tmp_path: Path, unused_tcp_port_factory: Port
) -> None:
    sink, port = GrpcSink(), unused_tcp_port_factory()
    sent = [metrics_batch(100).bytes_of("metrics"), request(sum_of([(0, 10, 1)], temporality=CUMULATIVE))]
    async with sink.serve() as sink_port:
        exporter = {"otlp_grpc": {"endpoint": f"http://localhost:{sink_port}"}}
        async with collector(tmp_path, gateway(port, exporter), port):
            await send(port, *sent)
            await until(lambda: len(sink.requests) == 2)
    assert sorted(sink.requests) == sorted(sent)


async def test_as_is_forwards_deltas_and_delta_subtracts(tmp_path: Path, unused_tcp_port_factory: Port) -> None:
    raw, made = GrpcSink(), GrpcSink()
    ports = unused_tcp_port_factory(), unused_tcp_port_factory()
    totals = [request(sum_of([(0, 10 * n, n * n)], temporality=CUMULATIVE)) for n in range(1, 6)]
    async with raw.serve() as raw_port, made.serve() as made_port:
        as_is = gateway(ports[0], {"otlp_grpc": {"endpoint": f"http://localhost:{raw_port}", "temporality": "as_is"}})
        delta = gateway(ports[1], {"otlp_grpc": {"endpoint": f"http://localhost:{made_port}", "temporality": "delta"}})
        async with collector(tmp_path / "a", as_is, ports[0]), collector(tmp_path / "b", delta, ports[1]):
            await send(ports[0], *deltas(0, 3))
            await send(ports[1], *totals)
            await until(lambda: len(sent(raw.requests)) == 6 and len(sent(made.requests)) == 4)
    assert b"".join(raw.requests) == b"".join(deltas(0, 3)), "requests that wait are joined in order"
    found = sent(made.requests)
    assert {metric.sum.aggregation_temporality for metric in found} == {DELTA}
    assert sorted(point.as_int for metric in found for point in points(metric)) == [3, 5, 7, 9], "1 is the baseline"


async def test_after_a_kill_the_queue_on_the_disk_and_new_totals_count_every_delta_once(
    tmp_path: Path, unused_tcp_port_factory: Port
) -> None:
    sink, port, sink_port = GrpcSink(), unused_tcp_port_factory(), unused_tcp_port_factory()
    storage = {"file_storage": {"directory": str(tmp_path / "storage"), "create_directory": True}}
    options = {"endpoint": f"http://localhost:{sink_port}", "sending_queue": {"storage": "file_storage"}}
    settings = gateway(port, {"otlp_grpc": options}, extensions=storage)
    async with collector(tmp_path, settings, port) as running:  # its backend is down
        await send(port, *deltas(0, 10))
        running.kill()
    async with sink.serve(port=sink_port), collector(tmp_path, settings, port):
        await send(port, *deltas(10, 20))
        await until(lambda: increase(sink.requests, "requests") == 40, within=60)
    starts = {point.start_time_unix_nano for metric in sent(sink.requests) for point in points(metric)}
    assert len(starts) == 2, "a reset"


async def test_a_reload_keeps_the_totals(tmp_path: Path, unused_tcp_port_factory: Port) -> None:
    sink, port = GrpcSink(), unused_tcp_port_factory()
    async with sink.serve() as sink_port:
        settings = gateway(port, {"otlp_grpc": {"endpoint": f"http://localhost:{sink_port}"}})
        async with collector(tmp_path, settings, port) as running:
            await send(port, *deltas(0, 5))
            config = tmp_path / "config.yaml"
            config.write_text(config.read_text().replace("compression: none", "compression: gzip"))
            running.process.send_signal(signal.SIGHUP)
            await until(lambda: "Reload" in running.log, within=60)
            await send(port, *deltas(5, 10))
            await until(lambda: increase(sink.requests, "requests") == 20, within=60)
    starts = {point.start_time_unix_nano for metric in sent(sink.requests) for point in points(metric)}
    assert len(starts) == 1


DELTAS: dict[type, AggregationTemporality] = {
    Counter: AggregationTemporality.DELTA,
    UpDownCounter: AggregationTemporality.DELTA,
    Histogram: AggregationTemporality.DELTA,
}
VIEWS = [
    View(instrument_name="explicit", aggregation=ExplicitBucketHistogramAggregation([1, 10, 100])),
    View(instrument_name="exponential", aggregation=ExponentialBucketHistogramAggregation()),
]


async def test_the_totals_are_those_that_the_sdk_itself_would_have_sent(
    tmp_path: Path, unused_tcp_port_factory: Port
) -> None:
    """One SDK with two readers: deltas to the collector, and cumulative data in memory as the oracle."""
    sink, port, oracle = GrpcSink(), unused_tcp_port_factory(), InMemoryMetricReader()
    async with sink.serve() as sink_port:
        settings = gateway(port, {"otlp_grpc": {"endpoint": f"http://localhost:{sink_port}"}})
        async with collector(tmp_path, settings, port):
            sender = OTLPMetricExporter(
                endpoint=f"http://127.0.0.1:{port}", insecure=True, preferred_temporality=DELTAS
            )
            reader = PeriodicExportingMetricReader(sender, export_interval_millis=3_600_000)
            provider = MeterProvider([oracle, reader], views=VIEWS, shutdown_on_exit=False)
            await asyncio.to_thread(_work, provider)
            expected = _state(json.loads(oracle.get_metrics_data().to_json()))  # type: ignore[union-attr]  # has data
            await until(lambda: _newest(sink.requests) == expected, within=60)
            await asyncio.to_thread(provider.shutdown)
    assert {name for name, _ in expected} == {"steps", "queue", "explicit", "exponential"}


def _work(provider: MeterProvider) -> None:
    meter = provider.get_meter("training")
    steps, queue = meter.create_counter("steps"), meter.create_up_down_counter("queue")
    explicit, exponential = meter.create_histogram("explicit"), meter.create_histogram("exponential")
    for flush in range(5):
        for value in range(200):
            rank = {"rank": value % 4}
            steps.add(value, rank)
            queue.add(value % 7 - 3, rank)
            explicit.record(value * 0.75, rank)
            exponential.record(1.5 ** (value % (20 * flush + 3)), rank)
        assert provider.force_flush()


State = dict[tuple[str, int], object]
"""By metric and rank."""


def _state(data: dict[str, object]) -> State:
    """The cumulative points of the SDK in a form to compare."""
    found: State = {}
    for resource in data["resource_metrics"]:  # type: ignore[attr-defined]  # JSON
        for metric in (metric for scope in resource["scope_metrics"] for metric in scope["metrics"]):
            for point in metric["data"]["data_points"]:
                found[metric["name"], point["attributes"]["rank"]] = _of_sdk(point)
    return found


def _of_sdk(point: dict[str, object]) -> object:
    if "value" in point:
        return point["value"]
    if "explicit_bounds" in point:
        return point["bucket_counts"], point["count"], point["sum"], point["min"], point["max"]
    positive: dict[str, object] = point["positive"]  # type: ignore[assignment]  # JSON
    scale, offset = point["scale"], positive["offset"]
    return scale, _trimmed(offset, positive["bucket_counts"]), point["count"], pytest.approx(point["sum"])  # type: ignore[arg-type]  # JSON


def _trimmed(offset: int, counts: list[int]) -> dict[int, int]:
    return {index: count for index, count in enumerate(counts, offset) if count}


def _newest(requests: list[bytes]) -> State:
    """The newest points that the backend got."""
    found: State = {}
    for metric in sent(requests):
        for point in points(metric):
            rank = next(pair.value.int_value for pair in point.attributes if pair.key == "rank")
            found[metric.name, rank] = _of_otlp(point)
    return found


def _of_otlp(point: object) -> object:
    match type(point).__name__:
        case "NumberDataPoint":
            return point.as_int  # type: ignore[attr-defined]  # matched by name
        case "HistogramDataPoint":
            fields = ("bucket_counts", "count", "sum", "min", "max")
            counts, *others = (getattr(point, field) for field in fields)
            return list(counts), *others
        case _:
            positive = point.positive  # type: ignore[attr-defined]  # matched by name
            buckets = _trimmed(positive.offset, list(positive.bucket_counts))
            return point.scale, buckets, point.count, point.sum  # type: ignore[attr-defined]  # matched by name
