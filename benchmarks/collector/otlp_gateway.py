"""A gateway: OTLP in and OTLP out over gRPC, without compression. rotel does the same work in the same run.

Each gateway is a process between a sender and a sink, which are processes of their own. The measure is the CPU time of
the process in the middle: other programs on the machine affect it least. `GATEWAY_REQUESTS` scales the load.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Any

import psutil
import yaml

from benchmarks import BenchmarkRow, cpu_of
from tests.free_ports import free_port

REQUESTS = int(os.environ.get("GATEWAY_REQUESTS", "4000"))
"""Requests of 1,000 points. There are 5 times as many of 10 points."""
LATENCY_SECONDS = 10.0
IN_MEMORY_BAR, DURABLE_BAR, SMALL_BAR = 3.5, 2.0, 1.0
"""Times rotel's points per CPU second."""
HOSTILE_BAR_MS = 100.0
"""For the slowest hundredth of an honest sender's requests while others send hostile ones."""
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
    """The delay of an honest sender while others send 4 MB or 300 kB of hostile bytes each, from other processes."""
    with tempfile.TemporaryDirectory() as folder, _role("sink") as (_, sink_port):
        port = free_port()
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
        port = free_port()
        with _gateway(gateway, port, sink_port, Path(folder)) as process:
            _send(port, sink_port, load.points, load.requests // 10, 0)  # warm
            before, start = cpu_of(process), time.monotonic()
            acknowledged = _send(port, sink_port, load.points, load.requests, 0)["points"]
            seconds, cpu = time.monotonic() - start, cpu_of(process) - before
            rss = process.memory_info().rss / 1e6
            rate = load.requests / seconds / 2
            paced = _send(port, sink_port, load.points, int(rate * LATENCY_SECONDS), rate)
            assert sink.poll() is None
    points = load.points * load.requests
    return Figures(points / cpu, points / seconds, rss, paced["p50"], paced["p99"], points - acknowledged)


def _send(port: int, sink_port: int, points: int, requests: int, rate: float) -> dict[str, Any]:
    arguments = ["send", str(port), str(sink_port), str(points), str(requests), str(rate)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers.otlp", *arguments], check=True, stdout=subprocess.PIPE
    )
    return dict(json.loads(done.stdout))


@contextmanager
def _role(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process of `benchmarks.peers.otlp`, and the port that it prints."""
    command = [sys.executable, "-m", "benchmarks.peers.otlp", *arguments]
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
    receiver = ["--otlp-grpc-endpoint", f"127.0.0.1:{port}", "--otlp-http-endpoint", f"127.0.0.1:{free_port()}"]
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
