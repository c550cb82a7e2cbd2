"""A gateway: OTLP in and OTLP out over gRPC, without compression. rotel does the same work in the same run.

Each gateway is a process between a sender and a sink, which are processes of their own. The measure is the CPU time of
the process in the middle: other programs on the machine affect it least. `GATEWAY_REQUESTS` scales the load.
"""

import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Any

import psutil
import yaml

from benchmarks import BenchmarkRow
from otel_zernel_receivers.otlp.grpc.fields import encode_field

REQUESTS = int(os.environ.get("GATEWAY_REQUESTS", "4000"))
"""Requests of 1,000 points. There are 5 times as many of 10 points."""
ATTRIBUTES = 8
IN_FLIGHT = 8
"""Requests that the sender has in flight."""
LATENCY_SECONDS = 10.0
EXPORT = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
IN_MEMORY_BAR, DURABLE_BAR, SMALL_BAR = 3.5, 2.0, 1.0
"""Times rotel's points per CPU second."""
HOSTILE_BAR_MS = 100.0
"""For the slowest hundredth of an honest sender's requests while others send hostile ones."""
ATTACKERS = 4
"""Hostile requests in flight."""
HONEST_RATE = 50.0
"""Requests per second of the honest sender."""


@dataclass(frozen=True)
class Load:
    """The work of one measurement."""

    points: int
    """In one request."""
    requests: int


LARGE, SMALL = Load(1000, REQUESTS), Load(10, 5 * REQUESTS)


@dataclass(frozen=True)
class Figures:
    """The results of one gateway under one load."""

    points_per_cpu_s: float
    points_per_s: float
    rss_mb: float
    p50_ms: float
    """Time of one request at half of the throughput."""
    p99_ms: float
    lost: int


def run() -> list[BenchmarkRow]:
    """Large and small requests through rotel and through this collector, in memory and durable."""
    rows = []
    for name, load, bar in (("1,000", LARGE, IN_MEMORY_BAR), ("10", SMALL, SMALL_BAR)):
        rotel = measure("rotel", load) if importlib.util.find_spec("rotel") else None
        memory = measure("memory", load)
        rows += _rows(f"gateway, {name}-point requests", memory, rotel, bar)
        if rotel:
            rows += _rows(f"rotel, {name}-point requests", rotel, None, 0)
        if load is LARGE and has_storage():
            rows += _rows(f"durable gateway, {name}-point requests", measure("durable", load), rotel, DURABLE_BAR)
    return [*rows, hostile()]


def hostile() -> BenchmarkRow:
    """The delay of an honest sender while others send 4 MB of hostile bytes each. All are processes of their own."""
    with tempfile.TemporaryDirectory() as folder, _role("sink") as (_, sink_port):
        port = _free_port()
        with _gateway("memory", port, sink_port, Path(folder)), _role("attack", str(port)):
            paced = _send(port, sink_port, 10, int(HONEST_RATE * LATENCY_SECONDS), HONEST_RATE)
    delay = f"{paced['p50']:.1f} / {paced['p99']:.1f} ms"
    is_met = paced["p99"] <= HOSTILE_BAR_MS
    return BenchmarkRow("gateway, p50 / p99 beside hostile requests", delay, f"p99 <= {HOSTILE_BAR_MS:g} ms", is_met)


def has_storage() -> bool:
    """Whether this collector has the extension `file_storage`."""
    from otel_zernel.registry import Registry

    return "file_storage" in Registry.installed().aliases("extensions")


def _rows(name: str, one: Figures, rotel: Figures | None, bar: float) -> list[BenchmarkRow]:
    cpu = f"{one.points_per_cpu_s / 1e6:.2f} M points/CPU s"
    first = BenchmarkRow(name, cpu)
    if rotel:
        times = one.points_per_cpu_s / rotel.points_per_cpu_s
        first = BenchmarkRow(name, f"{cpu}, {times:.1f} x", f">= {bar:g} x rotel", times >= bar)
    lost = BenchmarkRow(f"{name}: lost points", str(one.lost), "0", one.lost == 0)
    latency = f"{one.p50_ms:.1f} / {one.p99_ms:.1f} ms"
    return [
        first,
        lost,
        BenchmarkRow(f"{name}: p50 / p99 at half load", latency),
        BenchmarkRow(f"{name}: resident memory", f"{one.rss_mb:.0f} MB"),
    ]


def measure(gateway: str, load: Load) -> Figures:
    """Runs one gateway (rotel, memory or durable) under one load."""
    with tempfile.TemporaryDirectory() as folder, _role("sink") as (sink, sink_port):
        port = _free_port()
        with _gateway(gateway, port, sink_port, Path(folder)) as process:
            _send(port, sink_port, load.points, load.requests // 10, 0)  # warm
            before, start = _cpu(process), time.monotonic()
            acknowledged = _send(port, sink_port, load.points, load.requests, 0)["points"]
            seconds, cpu = time.monotonic() - start, _cpu(process) - before
            rss = process.memory_info().rss / 1e6
            rate = load.requests / seconds / 2
            paced = _send(port, sink_port, load.points, int(rate * LATENCY_SECONDS), rate)
            assert sink.poll() is None
    points = load.points * load.requests
    return Figures(points / cpu, points / seconds, rss, paced["p50"], paced["p99"], points - acknowledged)


def _cpu(process: psutil.Process) -> float:
    return float(sum(process.cpu_times()[:2]))


def _send(port: int, sink_port: int, points: int, requests: int, rate: float) -> dict[str, Any]:
    arguments = ["send", str(port), str(sink_port), str(points), str(requests), str(rate)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.collector.otlp_gateway", *arguments], check=True, stdout=subprocess.PIPE
    )
    return dict(json.loads(done.stdout))


@contextmanager
def _role(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process of this module, and the port that it prints."""
    command = [sys.executable, "-m", "benchmarks.collector.otlp_gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def _gateway(name: str, port: int, sink: int, folder: Path) -> Iterator[psutil.Process]:
    command = _rotel(port, sink) if name == "rotel" else _collector(port, sink, folder, durable=name == "durable")
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_for(port, process, folder / "log")
            yield psutil.Process(process.pid)
        finally:
            process.terminate()


def _rotel(port: int, sink: int) -> list[str]:
    package = importlib.util.find_spec("rotel")
    assert package
    assert package.origin
    program = str(Path(package.origin).parent / "rotel-agent")
    exporter = ["--exporter", "otlp", "--otlp-exporter-endpoint", f"http://localhost:{sink}"]
    receiver = ["--otlp-grpc-endpoint", f"127.0.0.1:{port}", "--otlp-http-endpoint", f"127.0.0.1:{_free_port()}"]
    return [program, "start", *receiver, *exporter, "--otlp-exporter-compression", "none"]


def _collector(port: int, sink: int, folder: Path, *, durable: bool) -> list[str]:
    queue: dict[str, Any] = {"batch": {}}  # 8,192 points or 200 ms, as rotel's defaults
    extensions: dict[str, Any] = {}
    if durable:
        extensions = {"file_storage": {"directory": str(folder / "storage"), "create_directory": True}}
        queue["storage"] = "file_storage"
    exporter = {"endpoint": f"http://localhost:{sink}", "compression": "none", "sending_queue": queue}
    config = {
        "extensions": extensions,
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": f"localhost:{port}"}}}},
        "exporters": {"otlp_grpc": exporter},
        "service": {
            "extensions": list(extensions),
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["otlp_grpc"]}},
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return [sys.executable, "-m", "otel_zernel", "run", "--config", str(path)]


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(400):
        with socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise RuntimeError(f"the gateway does not listen:\n{log.read_text()}")


def _free_port() -> int:
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# The processes around the gateway


def request_of(points: int) -> bytes:
    """An export request with `points` points of 8 attributes."""
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
    from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

    def attributes(index: int) -> list[KeyValue]:
        values = (AnyValue(string_value=f"value-{index}-{name}") for name in range(ATTRIBUTES))
        return [KeyValue(key=f"attribute.name.{name}", value=value) for name, value in enumerate(values)]

    made = [
        pb.NumberDataPoint(as_double=index * 1.1, time_unix_nano=10**18 + index, attributes=attributes(index))
        for index in range(points)
    ]
    metric = pb.Metric(name="hw.gpu.utilization", unit="1", gauge=pb.Gauge(data_points=made))
    resource = pb.ResourceMetrics(scope_metrics=[pb.ScopeMetrics(metrics=[metric])])
    return bytes(pb.MetricsData(resource_metrics=[resource]).SerializeToString())


async def sink() -> None:
    """Counts the points that arrive. The method `/count` returns their number."""
    import grpc

    from otel_zernel.batch import Batch

    arrived = 0

    async def export(request: bytes, _: Any) -> bytes:
        nonlocal arrived
        arrived += Batch.from_bytes(metrics=request).point_count
        return b""

    async def count(_: bytes, __: Any) -> bytes:
        return str(arrived).encode()

    class Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # a plain class at run time
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            method = count if handler_call_details.method == "/sink/count" else export
            return grpc.unary_unary_rpc_method_handler(method)

    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 20)])
    server.add_generic_rpc_handlers((Methods(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


async def send(port: int, sink_port: int, points: int, requests: int, rate: float) -> None:
    """Sends requests, and prints how many points arrived and how long requests took. Rate 0 sends at full load."""
    import grpc

    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{sink_port}") as sink_channel,
    ):
        export, count = channel.unary_unary(EXPORT, None, None), sink_channel.unary_unary("/sink/count", None, None)
        before = int(await count(b""))
        body, left, took, start = request_of(points), iter(range(requests)), [], time.monotonic()

        async def work() -> None:
            for index in left:
                due = start + index / rate if rate else time.monotonic()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await _insist(export, body)
                took.append(time.monotonic() - due)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        arrived, patience = 0, time.monotonic() + 30
        while arrived < points * requests and time.monotonic() < patience:
            arrived = int(await count(b"")) - before
            await asyncio.sleep(0.02)
    took.sort()
    at = {name: took[int(len(took) * share)] * 1e3 for name, share in (("p50", 0.5), ("p99", 0.99))}
    print(json.dumps({"points": arrived, **at}))


def hostile_messages() -> list[bytes]:
    """Messages just below the limit of 4 MiB that are dear to check: they consist of tiny parts."""
    size = 4_000_000
    return [
        b"\x0a\x00" * (size // 2),  # empty resources
        encode_field(1, b"\x12\x00" * (size // 2)),  # empty scopes
        encode_field(1, encode_field(2, b"\x12\x06\x0a\x04name" * (size // 8))),  # metrics without data
        encode_field(1, encode_field(2, encode_field(2, encode_field(5, b"\x0a\x09\x11" + bytes(8)) * (size // 13)))),
    ]


async def attack(port: int) -> None:
    """Sends hostile requests until it is terminated."""
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        export, bodies = channel.unary_unary(EXPORT, None, None), hostile_messages()

        async def work(body: bytes) -> None:
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await export(body)

        print(0, flush=True)
        await asyncio.gather(*(work(bodies[index % len(bodies)]) for index in range(ATTACKERS)))


async def _insist(export: Any, body: bytes) -> None:
    import grpc

    while True:
        try:
            await export(body)
            return
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    role, *numbers = sys.argv[1:]
    if role == "sink":
        asyncio.run(sink())
    elif role == "attack":
        asyncio.run(attack(int(numbers[0])))
    else:
        to, behind, size, how_many = map(int, numbers[:4])
        asyncio.run(send(to, behind, size, how_many, float(numbers[4])))
