"""The whole process: `otel-zernel run --exit-when-done` reads 2 million rows of dcgm CSV and sends them by OTLP/HTTP.

Compared, by the clock, with a process in which `csv.reader` merely reads the same file. The time includes the start of
Python, all imports, the delivery of the last batch and the end of the process. `CSV_PROCESS_ROWS` scales the load.
"""

import asyncio
import contextlib
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

from benchmarks import BenchmarkRow
from benchmarks.csv_to_otlp import write

ROWS = int(os.environ.get("CSV_PROCESS_ROWS", "2000000"))
TURNS = 2
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n"
BAR = 1.0
"""At least the speed of `csv.reader`."""


def run() -> list[BenchmarkRow]:
    """Runs both processes alternately. The best run of each counts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dcgm.csv"
        write(path, ROWS)
        turns = [(_timed("read", str(path)), moved(path, Path(folder))) for _ in range(TURNS)]
    reading, moving = (min(seconds) for seconds in zip(*turns, strict=True))
    ratio = reading / moving
    return [
        BenchmarkRow(
            f"csv.reader reading {ROWS / 1e6:g} M rows, whole process", f"{ROWS / reading / 1e3:.0f} k rows/s"
        ),
        BenchmarkRow("csv to OTLP/HTTP, whole process", f"{ROWS / moving / 1e3:.0f} k rows/s"),
        BenchmarkRow("csv to OTLP/HTTP / csv.reader", f"{ratio:.2f} x", f"at least {BAR:g} x", ratio >= BAR),
    ]


def moved(path: Path, folder: Path) -> float:
    """The seconds in which one collector moves the file to a sink. Raises `AssertionError` if a row is missing."""
    with _sink() as (sink, port):
        config = folder / "config.yaml"
        config.write_text(yaml.safe_dump(_config(path, port)))
        start = time.monotonic()
        subprocess.run([sys.executable, "-m", "otel_zernel", "run", "--config", config, "--exit-when-done"], check=True)
        seconds = time.monotonic() - start
        arrived = json.loads(sink.communicate("\n")[0])
    if arrived["points"] != ROWS:
        raise AssertionError(f"{ROWS} rows made {arrived['points']} points")
    return seconds


def _config(path: Path, port: int) -> dict[str, object]:
    return {
        "receivers": {"csv": {"files": [str(path)]}},
        "exporters": {"otlp_http": {"endpoint": f"http://127.0.0.1:{port}", "compression": "none"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"metrics": {"receivers": ["csv"], "exporters": ["otlp_http"]}},
        },
    }


def _timed(*arguments: str) -> float:
    start = time.monotonic()
    subprocess.run([sys.executable, "-m", "benchmarks.collector.csv_process", *arguments], check=True)
    return time.monotonic() - start


def _read(path: Path) -> None:
    with path.open(newline="") as file:
        rows = sum(1 for _ in csv.reader(file))
    assert rows == ROWS + 1


@contextlib.contextmanager
def _sink() -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process that accepts every request. It prints its port, and after a line of input the number of points."""
    command = [sys.executable, "-m", "benchmarks.collector.csv_process", "sink"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


class _Sink(asyncio.Protocol):
    """Keeps the bodies of POST requests, unread: counting the points must not take a core from the collector."""

    def __init__(self, bodies: list[bytes]) -> None:
        self._bodies = bodies
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n", 0, 4096)) >= 0:
            head = bytes(self._received[:end]).lower()
            size = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
            if len(self._received) < end + 4 + size:
                return
            self._bodies.append(bytes(self._received[end + 4 : end + 4 + size]))
            del self._received[: end + 4 + size]
            assert isinstance(self._transport, asyncio.Transport)
            self._transport.write(_ANSWER)


async def _serve() -> None:
    from otel_zernel.batch import Batch

    bodies: list[bytes] = []
    server = await asyncio.get_running_loop().create_server(lambda: _Sink(bodies), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    points = sum(Batch.from_bytes(metrics=body).point_count for body in bodies)
    print(json.dumps({"points": points, "requests": len(bodies), "bytes": sum(map(len, bodies))}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "read":
        _read(Path(sys.argv[2]))
    else:
        asyncio.run(_serve())
