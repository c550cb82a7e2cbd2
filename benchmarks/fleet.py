"""10,000 workers on one heartbeat receiver: the time of a heartbeat, of queries, and the memory of a worker.

The master, the workers (in two processes) and a probe are processes of their own. Every worker has a channel of gRPC,
and beats every 5 s. The master measures a heartbeat from the read of its frame to the write of its answer, with the
other heartbeats that arrive in between. Two probes measure round trips, with the time that they wait for a CPU: one on
a plain socket, and one with gRPC's client for Python. `FLEET_WORKERS` and `FLEET_SECONDS` scale the load.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks import BenchmarkRow, cpu_of

WORKERS = int(os.environ.get("FLEET_WORKERS", "10000"))
SECONDS = float(os.environ.get("FLEET_SECONDS", "20"))
INTERVAL = 5.0
"""Seconds between two heartbeats of a worker."""
_SETTLING = 2.0
"""Seconds after all have connected."""
HEARTBEAT_BAR_MS, ONE_BAR_MS, ALL_BAR_MS, MEMORY_BAR_KB = 1.0, 1.0, 10.0, 100.0
Process = subprocess.Popen[str]


@dataclass(frozen=True)
class FleetFigures:
    """The results of one way of sending. Times are in ms."""

    p50: float
    p99: float
    """Of a heartbeat in the master, from reading it to writing its answer."""
    raw_p50: float
    raw_p99: float
    """From sending it to its answer, by a plain socket."""
    client_p50: float
    client_p99: float
    """The same with the client of gRPC, and its time."""
    cpu_us: float
    """CPU time of the master by heartbeat, with its share of emissions and sweeps."""
    memory_kb: float
    """Memory of the master by worker."""
    one: float
    """The median query of one worker."""
    all: float
    """The slowest of 95 of 100 queries of all."""
    size_mb: float


def run() -> list[BenchmarkRow]:
    """Heartbeats by stream and by call."""
    return [row for method in ("stream", "call") for row in _rows(method, measure(method))]


def measure(method: str) -> FleetFigures:
    """Runs the fleet once."""
    with _process("master") as master:
        ports = json.loads(_line(master))
        server = psutil.Process(master.pid)
        before = server.memory_info().rss
        halves = (WORKERS // 2, WORKERS - WORKERS // 2)
        with _workers(ports[0], halves[0], method, "a") as a, _workers(ports[0], halves[1], method, "b") as b:
            for process in (a, b):
                _line(process)
            memory = server.memory_info().rss - before
            time.sleep(_SETTLING)
            _handled(master)
            cpu, begun = cpu_of(server), time.monotonic()
            with _process("probe", str(ports[0]), str(SECONDS / 4), method) as probe:
                raw = json.loads(_line(probe))
            with _workers(ports[0], 1, method, "probe", interval=0.02, seconds=SECONDS / 4) as client:
                _line(client)
                probed = json.loads(_line(client))
            handled = _handled(master)
            cpu = cpu_of(server) - cpu
            beats = WORKERS * (time.monotonic() - begun) / INTERVAL + raw["count"] + probed["count"]
            one, all_, size = _queries(ports[1])
    return FleetFigures(
        handled["p50"],
        handled["p99"],
        raw["p50"],
        raw["p99"],
        probed["p50"],
        probed["p99"],
        cpu / beats * 1e6,
        memory / WORKERS / 1e3,
        one,
        all_,
        size / 1e6,
    )


def _rows(method: str, found: FleetFigures) -> Iterator[BenchmarkRow]:
    name = f"fleet, {WORKERS:,} workers by {method}"
    yield BenchmarkRow(
        f"{name}: heartbeat in the master, p50 / p99",
        f"{found.p50:.2f} / {found.p99:.2f} ms",
        f"<= {HEARTBEAT_BAR_MS:g} ms",
        found.p99 <= HEARTBEAT_BAR_MS,
    )
    yield BenchmarkRow(f"{name}: ... and its round trip", f"{found.raw_p50:.2f} / {found.raw_p99:.2f} ms")
    client = f"{found.client_p50:.2f} / {found.client_p99:.2f} ms"
    yield BenchmarkRow(f"{name}: ... with the time of gRPC's client", client)
    yield BenchmarkRow(f"{name}: CPU of the master by heartbeat", f"{found.cpu_us:.0f} us")
    yield BenchmarkRow(
        f"{name}: one worker queried, p50",
        f"{found.one:.2f} ms",
        f"<= {ONE_BAR_MS:g} ms",
        found.one <= ONE_BAR_MS,
    )
    yield BenchmarkRow(
        f"{name}: all queried ({found.size_mb:.1f} MB), p95",
        f"{found.all:.1f} ms",
        f"<= {ALL_BAR_MS:g} ms",
        found.all <= ALL_BAR_MS,
    )
    yield BenchmarkRow(
        f"{name}: memory of a worker",
        f"{found.memory_kb:.0f} kB",
        f"<= {MEMORY_BAR_KB:g} kB",
        found.memory_kb <= MEMORY_BAR_KB,
    )


def _handled(master: Process) -> dict[str, float]:
    """The times in the master since the last call."""
    master.send_signal(signal.SIGUSR1)
    loads: dict[str, float] = json.loads(_line(master))
    return loads


def _queries(port: int) -> tuple[float, float, int]:
    """The median time of one worker, the p95 of all in ms, and the bytes of all. Workers beat meanwhile."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        one = sorted(_get(connection, "/telemetry/a-1")[0] for _ in range(500))
        everything = [_get(connection, "/telemetry") for _ in range(100)]
    return one[250], sorted(taken for taken, _ in everything)[95], everything[-1][1]


def _get(connection: socket.socket, path: str) -> tuple[float, int]:
    """The time of a query in ms, and the bytes of its body. On a plain socket the client's own time hardly counts."""
    start = time.perf_counter()
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    answer = bytearray()
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(1 << 20)
    head, _, begun = bytes(answer).partition(b"\r\n\r\n")
    size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    rest = memoryview(bytearray(size - len(begun)))
    while rest:
        rest = rest[connection.recv_into(rest) :]
    taken = (time.perf_counter() - start) * 1e3
    time.sleep(0.01)
    return taken, size


def _workers(
    port: int, count: int, method: str, prefix: str, *, interval: float = INTERVAL, seconds: float = SECONDS
) -> Any:
    return _process("workers", str(port), str(count), str(interval), str(seconds), method, prefix)


@contextmanager
def _process(module: str, *arguments: str) -> Iterator[Process]:
    command = [sys.executable, "-m", f"benchmarks.fleet_parts.{module}", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _line(process: Process) -> str:
    """The next line that the process prints."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} has ended")
    return line
