"""The databases of the tests: SQLite in a file, and a PostgreSQL server for the whole session."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.extensions.query.serving import Served, serving
from tests.libraries.store.given import postgres_config, sqlite_config
from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def settings(tmp_path: Path, request: pytest.FixtureRequest) -> WritableStoreConfig:
    if request.param == "sqlite":
        return sqlite_config(tmp_path, synchronous="normal", connect_timeout="60s")
    return postgres_config(request.getfixturevalue("postgres"))


@pytest.fixture
async def served(settings: WritableStoreConfig) -> AsyncIterator[Served]:
    async with serving(settings) as found:
        yield found
