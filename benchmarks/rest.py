"""The REST gateway on PostgreSQL: pages of 100 by filters, beside a bare starlette route, and the memory of clients.

The points are those of a fleet: 2,470 series (247 GPUs, 10 metrics each) every 15 s. SQL makes them, for at most
`LOADING` s: the bar is meant for 50 million. The gateway is a process of its own, without a limit of requests.
"""

import asyncio
import json
import random
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from time import perf_counter

import asyncpg
import psutil

from benchmarks import BenchmarkRow, cpu_of
from benchmarks.sql.writing import GPUS, METRICS, NOW_NS, OPTIONS, batches
from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.opening import writer_for
from tests.free_ports import free_port
from tests.postgres import PostgresServer, postgres_server

MOST = 50_000_000
LOADING = 300.0
SCRAPES = 1440
"""Of a partition: 6 h."""
STEP_NS = 15 * 10**9
REQUESTS = 400
CLIENTS = 500
SCHEMA = "rest"
_SETTINGS = (
    *(
        "shared_buffers=1GB",
        "maintenance_work_mem=512MB",
        "max_wal_size=20GB",
        "wal_level=minimal",
        "max_wal_senders=0",
    ),
    *("full_page_writes=off", "checkpoint_timeout=1h"),
)
_PARTITION = """
CREATE TABLE {s}.{name} (LIKE {s}.points);
INSERT INTO {s}.{name} SELECT id, {begin} + step * {step}, id + step * 0.25, NULL, NULL, NULL
FROM generate_series(0, {last}) AS step, (SELECT id FROM {s}.series ORDER BY id) AS series;
ALTER TABLE {s}.{name} ADD PRIMARY KEY (series_id, time) INCLUDE (value_double, value_int, start, flags);
CREATE INDEX ON {s}.{name} (time, series_id);
ALTER TABLE {s}.points ATTACH PARTITION {s}.{name} FOR VALUES FROM ({begin}) TO ({end});
"""
_BARE = """
import json, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

PAGE = json.load(sys.stdin)

async def page(request):
    return JSONResponse(PAGE)

uvicorn.run(Starlette(routes=[Route("/api/v1/telemetry", page)]), port=int(sys.argv[1]), log_level="critical")
"""
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def run() -> list[BenchmarkRow]:
    with postgres_server(*_SETTINGS) as server:
        begun = perf_counter()
        points, begin, end = asyncio.run(_load(server))
        loaded = BenchmarkRow("rest: points in PostgreSQL", f"{points / 1e6:.1f} M in {perf_counter() - begun:.0f} s")
        with _gateway(server) as (process, port):
            rows = asyncio.run(_measure(process, port, begin, end))
        return [loaded, *rows]


async def _load(server: PostgresServer) -> tuple[int, int, int]:
    """The number of points, their first ns and the first after them. The store itself writes the series."""
    store = writer_for(WritableStoreConfig(url=server.url(), schema_name=SCHEMA), OPTIONS)
    await store.open()
    for encoded in batches()[:1]:
        await store.write(Batch.from_bytes(metrics=encoded), 0)
    await store.close()
    connection = await asyncpg.connect(host=str(server.folder), port=server.port, user="postgres", database="postgres")
    until, points = perf_counter() + LOADING, 0
    begin = end = NOW_NS + 2 * 86_400 * 10**9
    while perf_counter() < until and points < MOST:
        begins, end = end, end + SCRAPES * STEP_NS
        name = f"points_{begins // 10**9}"
        await connection.execute(
            _PARTITION.format(s=SCHEMA, name=name, begin=begins, end=end, step=STEP_NS, last=SCRAPES - 1)
        )
        await connection.execute(f"VACUUM (ANALYZE) {SCHEMA}.{name}")  # as autovacuum does it
        points += SCRAPES * GPUS * METRICS
    await connection.close()
    return points, begin, end


@contextmanager
def _gateway(server: PostgresServer) -> Iterator[tuple[psutil.Process, int]]:
    port = free_port()
    tree = {
        "extensions": {
            "api": {"endpoint": f"localhost:{port}", "rate_limit": None, "max_connections": 2000},
            "query": {"url": server.url(), "schema_name": SCHEMA},
        },
        "service": {"extensions": ["api", "query"], "telemetry": {"metrics": {"level": "none"}}},
    }
    words = [sys.executable, "-m", "otel_zernel", "api", "--config", f"yaml:{json.dumps(tree)}"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            for line in process.stderr:
                if line.startswith("Ctrl-C"):
                    break
            yield psutil.Process(process.pid), port
        finally:
            process.kill()


def _start(chosen: random.Random, begin: int, end: int) -> str:
    return f"start_time={chosen.randrange(begin, end - 100 * STEP_NS) // 10**9}"


async def _measure(process: psutil.Process, port: int, begin: int, end: int) -> list[BenchmarkRow]:
    rows = []
    chosen = random.Random(1)
    start = partial(_start, chosen, begin, end)
    filters: dict[str, Callable[[], str]] = {
        "no filter": start,
        "one host": lambda: f"{start()}&host_id=node-{chosen.randrange(GPUS // 8)}",
        "one GPU and metric": lambda: f"{start()}&metric=hw.metric.3&uuid=GPU-{chosen.randrange(GPUS):032x}",
        "the newest of one GPU": lambda: f"sort=-time&uuid=GPU-{chosen.randrange(GPUS):032x}",
    }
    async with _connected(port) as connection:
        for name, query in filters.items():
            await _ask(connection, query())
            times = [await _timed(connection, query()) for _ in range(REQUESTS)]
            rows.append(_latencies(name, times))
        rows.append(_latencies("by cursor, 100,000 points deep", await _by_cursor(connection)))
        rows += await _beside_starlette(process, connection, start())
    return [*rows, await _memory(process, port, start())]


def _latencies(name: str, times: list[float]) -> BenchmarkRow:
    times = sorted(times)
    median, late = times[len(times) // 2] * 1e3, times[int(len(times) * 0.99)] * 1e3
    return BenchmarkRow(
        f"rest: a page of 100, {name}", f"p50 {median:.1f} ms, p99 {late:.1f} ms", "p99 <= 20 ms", late <= 20
    )


async def _by_cursor(connection: Connection) -> list[float]:
    query, times = "page=1000", []
    for _ in range(REQUESTS + 1):
        before = perf_counter()
        page = json.loads(await _ask(connection, query))
        times.append(perf_counter() - before)
        query = f"cursor={page['next_cursor']}"
    return times[1:]


async def _beside_starlette(process: psutil.Process, connection: Connection, query: str) -> list[BenchmarkRow]:
    page = await _ask(connection, query)
    ours = await _rate(process, connection, query)
    port = free_port()
    with subprocess.Popen([sys.executable, "-c", _BARE, str(port)], stdin=subprocess.PIPE) as bare:  # noqa: ASYNC220
        try:
            assert bare.stdin
            bare.stdin.write(page)
            bare.stdin.close()
            async with _connected(port) as other:
                theirs = await _rate(psutil.Process(bare.pid), other, query)
        finally:
            bare.kill()
    name = "rest: pages of 100 on one connection"
    return [
        BenchmarkRow(name, f"{ours[0]:.0f}/s, {ours[1] * 1e3:.1f} ms CPU", f"{ours[0] / theirs[0]:.0%} of starlette"),
        BenchmarkRow(
            "rest: ... starlette, the same page, no store", f"{theirs[0]:.0f}/s, {theirs[1] * 1e3:.1f} ms CPU"
        ),
    ]


async def _rate(process: psutil.Process, connection: Connection, query: str) -> tuple[float, float]:
    """Requests a second, and CPU seconds of the server for each."""
    await _ask(connection, query)
    before, begun = cpu_of(process), perf_counter()
    for _ in range(REQUESTS):
        await _ask(connection, query)
    taken, cpu = perf_counter() - begun, cpu_of(process) - before
    return REQUESTS / taken, cpu / REQUESTS


async def _memory(process: psutil.Process, port: int, query: str) -> BenchmarkRow:
    before = process.memory_info().rss
    clients = []
    for _ in range(CLIENTS):
        clients.append(await asyncio.open_connection("127.0.0.1", port))
        await _ask(clients[-1], query)
    each = (process.memory_info().rss - before) / CLIENTS
    for _, writer in clients:
        writer.close()
    resident = process.memory_info().rss
    return BenchmarkRow(
        f"rest: memory, and of each of {CLIENTS} open clients", f"{resident / 2**20:.0f} MiB, {each / 1e3:.0f} kB"
    )


async def _timed(connection: Connection, query: str) -> float:
    before = perf_counter()
    await _ask(connection, query)
    return perf_counter() - before


@asynccontextmanager
async def _connected(port: int) -> AsyncIterator[Connection]:
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    try:
        yield reader, writer
    finally:
        writer.close()


async def _ask(connection: Connection, query: str) -> bytes:
    """The body of a page."""
    reader, writer = connection
    writer.write(f"GET /api/v1/telemetry?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    assert head.startswith(b"HTTP/1.1 200"), head
    assert length, head
    return await reader.readexactly(int(length[1]))
