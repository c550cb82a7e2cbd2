"""SQLite's disk, file and locks fail: a batch is stored once or waits, and one sentence says why."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Literal

import pytest

from otel_zernel.errors import CannotStart, Retryable
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.sqlite.connecting import VERSION, open_writer
from otel_zernel_libraries.store.writer import StoreWriter
from tests.libraries.store.given import gauges, make, points_in, read_all, reader, sqlite_config, writer, writing
from tests.reliability.journals.disks import fill, remount, small_disk


@pytest.fixture
def settings(tmp_path: Path) -> WritableStoreConfig:
    return sqlite_config(tmp_path)


def move_away(folder: Path) -> None:
    for path in folder.glob("metrics.db*"):
        path.rename(folder / f"old-{path.name}")


async def test_a_full_disk_stores_nothing_of_a_batch_and_all_of_it_later(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1500k") as disk:
        settings = sqlite_config(disk)
        async with writing(settings) as store:
            await store.write(gauges(10, times=1), 0)
            filler = fill(disk)
            with pytest.raises(Retryable, match="the disk is full; make room or shorten the retention"):
                await store.write(gauges(500, times=10, first=1), 0)
            assert await points_in(settings) == 10
            filler.unlink()
            assert (await store.write(gauges(500, times=10, first=1), 0)).stored == 5000
            assert await points_in(settings) == 5010


async def test_a_disk_that_becomes_read_only_delays_a_batch(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk:
        async with writing(sqlite_config(disk)) as store:
            await store.write(gauges(10, times=1), 0)
            await store.close()
            remount(disk, "ro")
            with pytest.raises(Retryable, match=r"read-only|cannot be opened"):
                await store.write(gauges(10, times=1, first=1), 0)
            remount(disk, "rw")
            assert (await store.write(gauges(10, times=1, first=1), 0)).stored == 10


async def test_a_missing_directory_is_an_error_at_the_start(tmp_path: Path) -> None:
    store = writer(sqlite_config(tmp_path / "no"))
    with pytest.raises(
        CannotStart, match=r"exporters::sql::url: cannot open .*: its directory does not exist; create it"
    ):
        await store.open()


async def test_the_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    connect = sqlite3.connect(tmp_path / "metrics.db")
    connect.execute("CREATE TABLE theirs (a)")
    connect.close()
    before = (tmp_path / "metrics.db").read_bytes()
    with pytest.raises(CannotStart, match="is the database of another program; choose another path"):
        await writer(sqlite_config(tmp_path)).open()
    assert (tmp_path / "metrics.db").read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.db").write_bytes(b"timestamp,gpu\n" * 1000)
    with pytest.raises(CannotStart, match="the file is no SQLite database; move it away or choose another path"):
        await writer(sqlite_config(tmp_path)).open()


async def test_the_schema_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    await make(sqlite_config(tmp_path))
    newer = sqlite3.connect(tmp_path / "metrics.db")
    newer.execute(f"PRAGMA user_version = {VERSION + 1}")
    newer.close()
    for opening in (writer(sqlite_config(tmp_path)), reader(sqlite_config(tmp_path))):
        with pytest.raises(
            CannotStart, match=f"has version {VERSION + 1} of the schema, and this release knows {VERSION}"
        ):
            await opening.open()
        await opening.close()


async def test_a_reader_of_an_empty_or_missing_file_says_that_a_collector_has_to_start(tmp_path: Path) -> None:
    store = reader(sqlite_config(tmp_path))
    with pytest.raises(CannotStart, match="start a collector with the sql exporter first"):
        await store.open()
    (tmp_path / "metrics.db").touch()
    with pytest.raises(CannotStart, match="start a collector with the sql exporter first"):
        await store.open()
    await store.close()


async def test_a_batch_waits_for_the_lock_of_another_program_and_is_stored_later(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path, connect_timeout="50ms")
    async with writing(settings) as store:
        await store.open()
        connect = sqlite3.connect(tmp_path / "metrics.db", isolation_level=None)
        connect.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retryable, match="another program holds the lock of the file; end it"):
            await store.write(gauges(5, times=1), 0)
        connect.execute("ROLLBACK")
        connect.close()
        assert (await store.write(gauges(5, times=1), 0)).stored == 5


async def test_a_file_that_is_moved_away_is_made_again_with_all_of_its_series(
    settings: WritableStoreConfig, store: StoreWriter, tmp_path: Path
) -> None:
    """SQLite would go on writing to the moved file."""
    await store.write(gauges(5, times=1), 0)
    move_away(tmp_path)
    assert (await store.write(gauges(5, times=1, first=1), 0)).stored == 5
    found = await read_all(settings)
    assert sum(batch.point_count for batch in found) == 5
    assert found[0].metrics.resource_metrics[0].resource.attributes[0].key == "host.name"


async def test_a_damaged_file_is_named(store: StoreWriter, tmp_path: Path) -> None:
    await store.write(gauges(200, times=20), 0)
    await store.close()
    content = bytearray((tmp_path / "metrics.db").read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    (tmp_path / "metrics.db").write_bytes(content)
    with pytest.raises(Retryable, match="the file is damaged"):
        await store.write(gauges(200, times=20, first=20), 0)


async def test_a_long_read_delays_no_write_and_sees_one_moment(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path, connect_timeout="1ms")
    async with writing(settings) as store:
        await store.write(gauges(5, times=1), 0)
        long = sqlite3.connect(f"file:{tmp_path}/metrics.db?mode=ro", uri=True, isolation_level=None)
        long.execute("BEGIN")
        assert long.execute("SELECT count(*) FROM points").fetchone() == (5,)
        for first in range(1, 20):
            assert (await store.write(gauges(50, times=5, first=5 * first), 0)).stored == 250
        assert long.execute("SELECT count(*) FROM points").fetchone() == (5,)
        long.execute("COMMIT")
        assert long.execute("SELECT count(*) FROM points").fetchone() == (5 + 19 * 250,)
        long.close()


@pytest.mark.parametrize(("synchronous", "value"), [("full", 2), ("normal", 1)])
def test_a_power_failure_may_cost_the_last_batches_only_if_that_is_configured(
    tmp_path: Path, synchronous: Literal["full", "normal"], value: int
) -> None:
    connection = open_writer(tmp_path / "metrics.db", synchronous, 1.0)
    assert connection.execute("PRAGMA synchronous").fetchone() == (value,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


async def test_a_reader_follows_when_the_file_is_moved_away(
    settings: WritableStoreConfig, store: StoreWriter, tmp_path: Path
) -> None:
    reading = reader(settings)
    await store.write(gauges(5, times=1), 0)
    await reading.open()
    assert await reading.fetch("SELECT count(*) FROM points") == [(5,)]
    move_away(tmp_path)
    await store.write(gauges(3, times=1), 0)
    assert await reading.fetch("SELECT count(*) FROM points") == [(3,)]
    await reading.close()


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.mark.parametrize("ending", ["cancel", "close"])
async def test_queries_end_with_their_requests_and_with_their_reader(
    tmp_path: Path, ending: Literal["cancel", "close"]
) -> None:
    """Also those that wait for a thread. The test's own limit ends it if a query goes on."""
    settings = sqlite_config(tmp_path, pool_size=1)
    await make(settings)
    reading = reader(settings)
    await reading.open()
    queries = [asyncio.create_task(reading.fetch(ENDLESS)) for _ in range(3)]
    await asyncio.sleep(0.1)
    if ending == "cancel":
        for query in queries:
            query.cancel()
        assert await reading.fetch("SELECT count(*) FROM points") == [(0,)]
    await reading.close()
    ends = await asyncio.gather(*queries, return_exceptions=True)
    assert all(isinstance(end, asyncio.CancelledError) for end in ends) or ending == "close"
