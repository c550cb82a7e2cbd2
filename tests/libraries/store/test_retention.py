"""Old points go away, in partitions or in pieces, and nobody waits for it."""

import asyncio
import sqlite3
from pathlib import Path

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.address import PostgresAddress
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.postgres.partitions import free_spans, partition_name
from otel_zernel_libraries.store.writer import StoreWriter
from tests.libraries.store.given import (
    DAY_NS,
    NOW_NS,
    flat,
    gauges,
    histograms,
    points_in,
    read_all,
    reading,
    rows_in,
    sqlite_config,
    writer,
    writing,
)
from tests.postgres import PostgresServer

ON_POSTGRESQL = pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
KEPT = {"retention_ns": 2 * DAY_NS, "partition_ns": DAY_NS}


def partitions(server: PostgresServer, settings: WritableStoreConfig, table: str = "points") -> list[str]:
    """The names of the partitions of a table, without the table's name and the time of the day."""
    names = server.sql(
        "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid "
        f"WHERE inhparent = '{settings.schema_name}.{table}'::regclass ORDER BY 1"
    )
    return [name.removeprefix(f"{table}_").removesuffix("_000000") for name in names.split()]


async def newest(settings: WritableStoreConfig) -> int:
    async with reading(settings) as store:
        return (await store.state()).batches


@ON_POSTGRESQL
async def test_postgresql_makes_partitions_ahead_and_drops_old_ones(
    settings: WritableStoreConfig, postgres: PostgresServer
) -> None:
    async with writing(settings, **KEPT) as store:
        for day in (0, 1, 2):
            now = NOW_NS + day * DAY_NS
            await store.write(Batch.join([gauges(10, times=3, begin_ns=now), histograms(5, begin_ns=now)]), now)
        assert partitions(postgres, settings) == ["20241004", "20241005", "20241006"]
        assert await store.maintain(NOW_NS + 2 * DAY_NS) == 0
        assert partitions(postgres, settings) == [f"2024100{day}" for day in (4, 5, 6, 7, 8)]
        before = await newest(settings)
        assert await store.maintain(NOW_NS + 3 * DAY_NS + 1) == 3  # of points, histograms and exemplars
        assert partitions(postgres, settings) == [f"2024100{day}" for day in (5, 6, 7, 8, 9)]
        assert partitions(postgres, settings, "histograms") == [f"2024100{day}" for day in (5, 6, 7, 8, 9)]
        assert partitions(postgres, settings, "summaries") == []
        assert await newest(settings) > before
    assert await points_in(settings) == 2 * 35


async def test_sqlite_deletes_old_points_and_gives_their_room_back(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path, synchronous="normal")
    async with writing(settings, **KEPT) as store:
        old, young = NOW_NS - DAY_NS, NOW_NS
        await store.write(Batch.join([gauges(300, times=60, begin_ns=old), histograms(50, begin_ns=old)]), NOW_NS)
        await store.write(gauges(10, times=3, begin_ns=young), NOW_NS)
        pages = sqlite3.connect(tmp_path / "metrics.db").execute("PRAGMA page_count").fetchone()[0]
        before = await newest(settings)
        assert await store.maintain(NOW_NS) == 0
        assert await store.maintain(NOW_NS + DAY_NS + 3600 * 10**9) == 300 * 60 + 50 + 50  # with the exemplars
        assert sqlite3.connect(tmp_path / "metrics.db").execute("PRAGMA page_count").fetchone()[0] < pages / 4
        assert await newest(settings) > before
    assert await points_in(settings) == 30


async def test_points_before_the_retention_and_too_far_ahead_are_counted(settings: WritableStoreConfig) -> None:
    async with writing(settings, **KEPT, max_future_ns=3600 * 10**9) as store:
        late, early = gauges(3, times=1, begin_ns=NOW_NS - 3 * DAY_NS), gauges(2, times=1, begin_ns=NOW_NS + DAY_NS)
        impossible = gauges(4, times=1, begin_ns=2**63)
        batch = Batch.join([late, early, impossible, gauges(5, times=1), histograms(1, begin_ns=NOW_NS - 3 * DAY_NS)])
        written = await store.write(batch, NOW_NS)
    assert written.dropped == {"too_old": 4, "too_far_ahead": 2, "time_out_of_range": 4}
    assert (written.stored, await points_in(settings)) == (5, 5)


async def test_series_without_points_go_away_and_other_writers_notice_it(settings: WritableStoreConfig) -> None:
    async with writing(settings, **KEPT) as removing, writing(settings) as other:
        await other.write(Batch.join([gauges(10, times=1), histograms(4)]), NOW_NS)
        later = NOW_NS + 4 * DAY_NS
        kept = gauges(3, times=1, begin_ns=later)
        await other.write(kept, later)
        assert await removing.maintain(later) > 0
        assert (await rows_in(settings, "series"), await rows_in(settings, "resources")) == (3, 1)
        again = gauges(10, times=1, first=1, begin_ns=later)
        assert (await other.write(again, later)).stored == 10  # it has the former ids in memory
    assert flat(batch.metrics for batch in await read_all(settings)) == flat([kept.metrics, again.metrics])


@ON_POSTGRESQL
async def test_a_long_read_delays_neither_writes_nor_new_partitions_nor_old_ones_of_others(
    settings: WritableStoreConfig, postgres: PostgresServer
) -> None:
    async with writing(settings, **KEPT) as store:
        await store.write(gauges(10, times=1), NOW_NS)
        long_read = await asyncpg.connect(
            host=str(postgres.folder), port=postgres.port, user="postgres", database="postgres"
        )
        count = f"SELECT count(*) FROM {settings.schema_name}.points"
        async with long_read.transaction(isolation="repeatable_read"):
            assert await long_read.fetchval(count) == 10
            for day in (1, 2, 3):  # each needs a new partition
                now = NOW_NS + day * DAY_NS
                assert (await store.write(gauges(10, times=1, begin_ns=now), now)).stored == 10
            assert await long_read.fetchval(count) == 10
            dropping = asyncio.create_task(store.maintain(NOW_NS + 3 * DAY_NS + 1))
            while postgres.sql(_PENDING) == "0":  # it waits for the reader  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            now = NOW_NS + 3 * DAY_NS
            assert (await store.write(gauges(10, times=1, first=1, begin_ns=now), now)).stored == 10
            assert await rows_in(settings, "points") == 40  # without the partition that goes away
            assert await long_read.fetchval(count) == 10
        await long_read.close()
        assert await dropping == 1


_PENDING = "SELECT count(*) FROM pg_inherits WHERE inhdetachpending"


@ON_POSTGRESQL
async def test_partitions_that_a_killed_collector_detached_are_dropped(
    settings: WritableStoreConfig, postgres: PostgresServer
) -> None:
    async with writing(settings, **KEPT) as store:
        await store.write(gauges(10, times=1), NOW_NS)
        schema = settings.schema_name
        name = f"{schema}.points_20241004_000000"
        postgres.sql(f"ALTER TABLE {schema}.points DETACH PARTITION {name}")
        await store.maintain(NOW_NS + 3 * DAY_NS)
        assert postgres.sql(f"SELECT to_regclass('{name}') IS NULL") == "t"


@ON_POSTGRESQL
async def test_a_partition_that_vanishes_is_made_again(
    settings: WritableStoreConfig, store: StoreWriter, postgres: PostgresServer
) -> None:
    await store.write(gauges(10, times=1), NOW_NS)
    postgres.sql(f"DROP TABLE {settings.schema_name}.points_20241004_000000")
    assert (await store.write(gauges(10, times=1, first=1), NOW_NS)).stored == 10


@ON_POSTGRESQL
async def test_another_length_of_partitions_fills_the_gaps_between_the_former_ones(
    settings: WritableStoreConfig,
) -> None:
    for hours, begin in ((24, NOW_NS), (7, NOW_NS + DAY_NS), (48, NOW_NS + 3 * DAY_NS), (1, NOW_NS - 1)):
        async with writing(settings, partition_ns=hours * 3600 * 10**9) as store:
            assert (await store.write(gauges(10, times=1, begin_ns=begin), NOW_NS)).stored == 10
    assert await points_in(settings) == 40


async def test_writers_that_start_at_once_make_each_table_and_partition_once(
    settings: WritableStoreConfig, request: pytest.FixtureRequest
) -> None:
    stores = [writer(settings) for _ in range(5)]
    written = await asyncio.gather(
        *(store.write(gauges(10, times=1, first=number), NOW_NS) for number, store in enumerate(stores))
    )
    for store in stores:
        await store.close()
    assert sum(counts.stored for counts in written) == 50
    assert await rows_in(settings, "series") == 10
    if isinstance(settings.address, PostgresAddress):
        assert partitions(request.getfixturevalue("postgres"), settings) == ["20241004"]


@ON_POSTGRESQL
async def test_wrong_times_cannot_ask_for_any_number_of_partitions(settings: WritableStoreConfig) -> None:
    async with writing(settings, most_partitions=2) as store:
        days = [
            gauges(number, times=1, begin_ns=NOW_NS + day * DAY_NS) for number, day in ((3, 0), (4, 1), (5, 2), (6, 3))
        ]
        written = await store.write(Batch.join(days), NOW_NS)
        assert (written.stored, written.dropped) == (7, {"too_many_partitions": 11})
        assert (await store.write(days[1], NOW_NS)).repeated == 4


@given(st.tuples(st.integers(0, 20), st.integers(1, 20)), st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9))))
def test_the_free_spans_are_all_that_is_not_taken(wanted: tuple[int, int], given: list[tuple[int, int]]) -> None:
    begin, length = wanted
    taken = [(first, first + size) for first, size in given]
    covered = {time for first, end in taken for time in range(first, end)}
    free = [time for first, end in free_spans((begin, begin + length), taken) for time in range(first, end)]
    assert free == [time for time in range(begin, begin + length) if time not in covered]


def test_partitions_have_different_names() -> None:
    assert partition_name("points", NOW_NS) == "points_20241004_000000"
    assert partition_name("points", NOW_NS + 1) == "points_20241004_000000_1"
