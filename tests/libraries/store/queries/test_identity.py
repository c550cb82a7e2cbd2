"""Writers and readers notice that a store was emptied, made anew or restored, and that series were removed."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from otel_zernel_libraries.store.address import SqliteAddress
from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.queries.catalogue import Catalogue
from otel_zernel_libraries.store.queries.series import SeriesFilter
from otel_zernel_libraries.store.reading import StoreReader, StoreState
from otel_zernel_libraries.store.writer import StoreWriter
from tests.libraries.store.given import (
    DAY_NS,
    NOW_NS,
    gauges,
    histograms,
    points_in,
    reading,
    sqlite_config,
    writing,
)

EVERYTHING = SeriesFilter()
Execute = Callable[..., None]
"""Runs statements as an administrator. `{s}` stands for the schema with a point, or for nothing in SQLite."""


@pytest.fixture
def execute(settings: WritableStoreConfig, request: pytest.FixtureRequest) -> Execute:
    def execute(*statements: str) -> None:
        if isinstance(address := settings.address, SqliteAddress):
            with closing(sqlite3.connect(address.path)) as connection:
                connection.executescript(";".join(statements).format(s=""))
        else:
            text = ";".join(statements).format(s=f"{settings.schema_name}.")
            request.getfixturevalue("postgres").sql(text)

    return execute


@asynccontextmanager
async def opened(settings: WritableStoreConfig, **options: int) -> AsyncIterator[tuple[StoreWriter, StoreReader]]:
    async with writing(settings, **options) as store:
        await store.open()
        async with reading(settings) as reader:
            yield store, reader


async def metrics_of(catalogue: Catalogue, state: StoreState) -> set[str]:
    await catalogue.refresh(state, 0.0)
    return {series.metric for series in (await catalogue.selected(EVERYTHING)).series}


def replace_files(folder: Path, other: Path) -> None:
    """Moves the store of another folder to the place of a store."""
    for file in folder.glob("metrics.db*"):
        file.unlink()
    for file in other.iterdir():
        file.rename(folder / file.name)


async def test_an_emptied_table_of_counts_begins_again_and_writers_go_on(
    settings: WritableStoreConfig, execute: Execute
) -> None:
    async with opened(settings) as (store, reading):
        await store.write(gauges(3, times=1), 0)
        before = await reading.state()
        execute("DELETE FROM {s}ingest")
        assert (await store.write(gauges(3, times=2), 0)).stored == 3
        after = await reading.state()
    assert (after.batches, after.removals) == (1, 0)
    assert after.identity != before.identity
    assert await points_in(settings) == 6


async def test_a_writer_gives_new_ids_after_the_tables_were_emptied(
    settings: WritableStoreConfig, execute: Execute
) -> None:
    async with opened(settings) as (store, reading):
        await store.write(gauges(3, times=1), 0)
        execute(*(f"DELETE FROM {{s}}{name}" for name in ("points", "series", "resources", "ingest")))
        await store.write(gauges(3, times=1), 0)
        assert await metrics_of(Catalogue(reading, 100), await reading.state()) == {"hw.gpu.utilization"}
    assert await points_in(settings) == 3


async def test_a_catalogue_forgets_the_series_of_an_emptied_store(
    settings: WritableStoreConfig, execute: Execute
) -> None:
    async with opened(settings) as (store, reading):
        catalogue = Catalogue(reading, 100)
        await store.write(gauges(3, times=1), 0)
        assert await metrics_of(catalogue, await reading.state()) == {"hw.gpu.utilization"}
        execute(*(f"DELETE FROM {{s}}{name}" for name in ("points", "series", "resources", "ingest")))
        for _ in range(3):  # more batches than before
            await store.write(histograms(3), 0)
        assert await metrics_of(catalogue, await reading.state()) == {"step.duration"}


async def test_a_catalogue_forgets_series_whose_points_the_retention_has_removed(
    settings: WritableStoreConfig,
) -> None:
    async with opened(settings, retention_ns=DAY_NS, partition_ns=DAY_NS) as (store, reading):
        catalogue = Catalogue(reading, 100)
        await store.write(gauges(3, times=1), NOW_NS)
        await store.write(histograms(3, begin_ns=NOW_NS + 3 * DAY_NS), NOW_NS)
        assert await metrics_of(catalogue, await reading.state()) == {"hw.gpu.utilization", "step.duration"}
        await store.maintain(NOW_NS + 3 * DAY_NS)
        assert await metrics_of(catalogue, await reading.state()) == {"step.duration"}


async def test_a_file_that_takes_the_place_of_the_store_is_noticed(tmp_path: Path) -> None:
    here, there = (sqlite_config(folder, synchronous="normal") for folder in (tmp_path, tmp_path / "other"))
    (tmp_path / "other").mkdir()
    async with opened(there) as (other, _):
        await other.write(histograms(3), 0)
        await other.write(histograms(2, begin_ns=NOW_NS + 1), 0)
    async with opened(here) as (store, reading):
        catalogue = Catalogue(reading, 100)
        await store.write(gauges(3, times=1), 0)
        assert await metrics_of(catalogue, await reading.state()) == {"hw.gpu.utilization"}
        await store.close()
        replace_files(tmp_path, tmp_path / "other")
        assert await metrics_of(catalogue, await reading.state()) == {"step.duration"}


async def test_a_lagging_replica_behind_the_same_address_changes_nothing(tmp_path: Path) -> None:
    settings = sqlite_config(tmp_path, synchronous="normal")
    async with opened(settings) as (store, reading):
        catalogue = Catalogue(reading, 100)
        await store.write(gauges(3, times=1), 0)
        newest = await reading.state()
        lagging = StoreState(newest.batches - 1, newest.removals, "the replica")
        for state in (newest, lagging, newest):
            assert await metrics_of(catalogue, state) == {"hw.gpu.utilization"}
        (kept,) = {id(series) for series in (await catalogue.selected(EVERYTHING)).series[:1]}
        await catalogue.refresh(lagging, 0.0)
        assert id((await catalogue.selected(EVERYTHING)).series[0]) == kept
