"""Points into SQLite and PostgreSQL, beside the drivers' own ways with the same rows in the same run.

The shape is that of a fleet: 2,470 series (247 GPUs, 10 metrics each), batches of 5,000 points. PostgreSQL is started
for the benchmark, with fsync. Take the ratios: the machine has other work.
"""

import asyncio
import gc
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from benchmarks import BenchmarkRow
from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.exotic import to_sqlite
from otel_zernel_libraries.store.opening import writer_for
from otel_zernel_libraries.store.postgres.schema import migrate
from otel_zernel_libraries.store.rows.batch_rows import rows_of
from otel_zernel_libraries.store.rows.points import Row
from otel_zernel_libraries.store.rows.series_cache import SeriesCache
from otel_zernel_libraries.store.rows.tables import POINTS
from otel_zernel_libraries.store.sqlite.connecting import open_writer
from otel_zernel_libraries.store.writer import WriterOptions
from tests.postgres import PostgresServer, postgres_server

GPUS, METRICS, SCRAPES = 247, 10, 60
BATCH = 5000
NOW_NS = 1_790_000_000 * 10**9
_UNNEST = """
INSERT INTO {s}.points SELECT * FROM unnest($1::int8[], $2::int8[], $3::float8[], $4::int8[], $5::int8[], $6::int4[])
ON CONFLICT DO NOTHING
"""
OPTIONS = WriterOptions("exporters::sql", series=100_000)


def batches() -> list[bytes]:
    """About 150,000 points as they arrive: encoded, in batches of 5,000."""
    data, made, found = MetricsData(), 0, []
    for scrape in range(SCRAPES):
        for gpu in range(GPUS):
            resource_metrics = data.resource_metrics.add()
            for key, value in (("host.name", f"node-{gpu // 8}"), ("hw.id", f"GPU-{gpu:032x}")):
                resource_metrics.resource.attributes.add(key=key).value.string_value = value
            metrics = resource_metrics.scope_metrics.add().metrics
            for number in range(METRICS):
                metric = metrics.add(name=f"hw.metric.{number}", unit="1")
                point = metric.gauge.data_points.add(time_unix_nano=NOW_NS + scrape * 10**9 + gpu * 1000)
                point.as_double = scrape + number / 3
                point.attributes.add(key="hw.id").value.string_value = f"GPU-{gpu:032x}"
                made += 1
            if made >= BATCH:
                found.append(data.SerializeToString())
                data, made = MetricsData(), 0
    return found


def rows(encoded: list[bytes]) -> list[list[Row]]:
    """The rows of all batches, with numbers in the place of the ids of series."""
    cache, numbers, found = SeriesCache(100_000), iter(range(1, 1 << 30)), []
    for one in encoded:
        batch = rows_of(Batch.from_bytes(metrics=one), cache)
        for series in batch.unresolved():
            series.id = next(numbers)
        found += [rows for _, rows in batch.tables()]
    return found


class Measured:
    """Points a second, and CPU microseconds of this process for each."""

    def __init__(self, points: int) -> None:
        self._points = points
        self._begun = perf_counter()
        self._cpu = process_time()

    def end(self) -> tuple[float, float]:
        return self._points / (perf_counter() - self._begun), (process_time() - self._cpu) / self._points * 1e6


async def longest_pause(pauses: list[float]) -> None:
    """Adds the seconds by which the event loop is late, until it is cancelled."""
    while True:
        begun = perf_counter()
        await asyncio.sleep(0.001)
        pauses.append(perf_counter() - begun - 0.001)


async def ours(
    config: WritableStoreConfig, encoded: list[bytes], points: int, writers: int = 1, pauses: list[float] | None = None
) -> tuple[float, float]:
    """Through the store, parsing and series included. The series are known, as after the first minute."""
    store = writer_for(config, OPTIONS)
    await store.write(Batch.encoded("metrics", encoded[0], 0), NOW_NS)
    waiting = iter(encoded[1:])

    async def write() -> None:
        for one in waiting:
            written = await store.write(Batch.encoded("metrics", one, 0), NOW_NS)
            assert not written.conflicting

    watching = asyncio.create_task(longest_pause(pauses if pauses is not None else []))
    measured = Measured(points)
    await asyncio.gather(*(write() for _ in range(writers)))
    result = measured.end()
    watching.cancel()
    await store.close()
    return result


def bare_sqlite(path: Path, given: list[list[Row]], points: int) -> tuple[float, float]:
    """`executemany` of the finished rows into the same table."""
    connection = open_writer(path, "full", 5.0)
    insertion = "INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?)"
    ready = [to_sqlite(POINTS, rows) for rows in given]
    measured = Measured(points)
    for some in ready[1:]:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(insertion, some)
        connection.execute("COMMIT")
    result = measured.end()
    connection.close()
    return result


async def bare_postgres(server: PostgresServer, way: str, given: list[list[Row]], points: int) -> tuple[float, float]:
    """The finished rows into a table with the same partitions and indexes, with one connection."""
    import asyncpg

    connection: Any = await asyncpg.connect(
        host=str(server.folder), port=server.port, user="postgres", database="postgres"
    )
    schema = f"bare_{way}"
    await migrate(connection, schema)
    day = 86_400 * 10**9
    begin = NOW_NS // day * day
    await connection.execute(
        f"CREATE TABLE {schema}.day PARTITION OF {schema}.points FOR VALUES FROM ({begin}) TO ({begin + 2 * day})"
    )
    await connection.execute(f"CREATE TEMP TABLE staged (LIKE {schema}.points) ON COMMIT DELETE ROWS")
    measured = Measured(points)
    for some in given[1:]:
        async with connection.transaction():
            if way == "copy":
                await connection.copy_records_to_table("points", schema_name=schema, records=some)
            elif way == "staged":
                await connection.copy_records_to_table("staged", records=some)
                await connection.execute(f"INSERT INTO {schema}.points SELECT * FROM staged ON CONFLICT DO NOTHING")
            else:
                columns = [list(column) for column in zip(*some, strict=True)]
                await connection.execute(_UNNEST.format(s=schema), *columns)
    result = measured.end()
    await connection.close()
    return result


def shown(result: tuple[float, float]) -> str:
    return f"{result[0] / 1000:.0f} k/s, {result[1]:.1f} us CPU"


def run() -> Iterator[BenchmarkRow]:
    sys.setswitchinterval(0.0005)  # as the collector does
    encoded = batches()
    given = rows(encoded)
    points = sum(map(len, given[1:]))
    gc.freeze()  # as the collector does: else the rows that are made ready count
    with tempfile.TemporaryDirectory() as folder:
        yield from _sqlite(Path(folder), encoded, given, points)
    with postgres_server("fsync=on", "shared_buffers=256MB", "max_wal_size=4GB") as server:
        yield from _postgres(server, encoded, given, points)


def _sqlite(folder: Path, encoded: list[bytes], given: list[list[Row]], points: int) -> Iterator[BenchmarkRow]:
    bare = bare_sqlite(folder / "bare.db", given, points)
    yield BenchmarkRow("sql: SQLite, executemany of finished rows", shown(bare))
    path = folder / "metrics.db"
    config, pauses = WritableStoreConfig(url=f"sqlite://{path}"), list[float]()
    result = asyncio.run(ours(config, encoded, points, pauses=pauses))
    share = result[0] / bare[0]
    yield BenchmarkRow("sql: SQLite, the store", shown(result), f"{share:.0%} of executemany, >= 25%", share >= 0.25)
    yield BenchmarkRow("sql: ... the same batches again", shown(asyncio.run(ours(config, encoded, points))))
    yield _pause(pauses)
    yield BenchmarkRow("sql: bytes of a point in SQLite", f"{path.stat().st_size / (points + len(given[0])):.0f} B")
    yield BenchmarkRow("sql: SQLite, removing old points", f"{asyncio.run(removed(config)) / 1000:.0f} k/s")


def _pause(pauses: list[float]) -> BenchmarkRow:
    """The 99th percentile: the longest one is that of the other programs of this machine."""
    late = sorted(pauses)[int(len(pauses) * 0.99)]
    return BenchmarkRow("sql: ... the event loop is late, p99", f"{late * 1e3:.1f} ms", "<= 10 ms", late <= 0.01)


async def removed(config: WritableStoreConfig) -> float:
    """Points a second that the retention removes."""
    store = writer_for(config, WriterOptions("exporters::sql", series=1000, retention_ns=1))
    begun = perf_counter()
    points = await store.maintain(NOW_NS + 86_400 * 10**9)
    taken = perf_counter() - begun
    await store.close()
    return points / taken


def _postgres(
    server: PostgresServer, encoded: list[bytes], given: list[list[Row]], points: int
) -> Iterator[BenchmarkRow]:
    copied = asyncio.run(bare_postgres(server, "copy", given, points))
    yield BenchmarkRow("sql: PostgreSQL, COPY of finished rows", shown(copied))
    for way, words in (("staged", "COPY to a temporary table, INSERT"), ("unnest", "INSERT of unnest")):
        result = asyncio.run(bare_postgres(server, way, given, points))
        yield BenchmarkRow(f"sql: PostgreSQL, {words}", shown(result), f"{result[0] / copied[0]:.0%} of COPY")
    for writers in (1, 4):
        config = WritableStoreConfig(url=server.url(), schema_name=f"ours_{writers}")
        pauses: list[float] = []
        result = asyncio.run(ours(config, encoded, points, writers, pauses))
        share = result[0] / copied[0]
        name = f"sql: PostgreSQL, the store, {writers} at once"
        yield BenchmarkRow(name, shown(result), f"{share:.0%} of COPY, >= 20%", share >= 0.2)
        yield _pause(pauses)
    yield BenchmarkRow("sql: ... the same batches again", shown(asyncio.run(ours(config, encoded, points))))
    size = server.sql(
        "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'ours_1.points'::regclass"
    )
    each = int(size) / (points + len(given[0]))
    yield BenchmarkRow("sql: bytes of a point in PostgreSQL, with its indexes", f"{each:.0f} B")
