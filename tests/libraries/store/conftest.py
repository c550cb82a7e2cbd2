"""The databases of the tests: SQLite in a file, and a PostgreSQL server for the whole session."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from otel_zernel_libraries.store.config import WritableStoreConfig
from otel_zernel_libraries.store.writer import StoreWriter
from tests.libraries.store.given import new_stores, writing
from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> WritableStoreConfig:
    """A new store in each database. Files of tests for one of them have a fixture of this name."""
    return new_stores(request)(tmp_path)


@pytest.fixture
async def store(settings: WritableStoreConfig) -> AsyncIterator[StoreWriter]:
    async with writing(settings) as store:
        yield store
