"""The databases of the tests: SQLite in a file, and a PostgreSQL server for the whole session."""

from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer, postgres_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server
