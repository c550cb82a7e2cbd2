"""Errors of PostgreSQL after which a transaction succeeds at once, and errors after which it never does."""

import re

import asyncpg
import pytest

from otel_zernel.errors import Permanent, Retryable
from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.libraries.store.given import config, gauges, points_in, postgres_config, writer
from tests.postgres import PASSWORD, PostgresServer, new_schema

_FAIL = """
CREATE SEQUENCE {schema}.attempts;
CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('{schema}.attempts') <= {times} THEN RAISE EXCEPTION 'made by the test' USING ERRCODE = '{code}'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER fail BEFORE INSERT ON {schema}.ingest FOR EACH ROW WHEN (NEW.slot >= 0) EXECUTE FUNCTION {schema}.fail();
"""


async def failing(server: PostgresServer, times: int, code: str) -> WritableStoreConfig:
    """A store whose first transactions fail at their ends."""
    settings = postgres_config(server)
    store = writer(settings)
    await store.open()
    await store.close()
    server.sql(_FAIL.format(schema=settings.schema_name, times=times, code=code))
    return settings


@pytest.mark.parametrize("code", ["40P01", "40001"])
async def test_a_deadlock_is_repeated_at_once(postgres: PostgresServer, code: str) -> None:
    settings = await failing(postgres, 2, code)
    store = writer(settings)
    assert (await store.write(gauges(10, times=3), 0)).stored == 30
    await store.close()
    assert await points_in(settings) == 30


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("40P01", Retryable, "writers waited for each other (deadlock)"),
        ("53100", Retryable, "the disk of the server is full"),
        ("53300", Retryable, "the server has no free connection"),
        ("57P01", Retryable, "the server was shut down"),
        ("58030", Retryable, "the disk of the server reports an error"),
        ("XX000", Retryable, "made by the test"),
        ("22003", Permanent, "does not accept the batch: made by the test"),
    ],
)
async def test_an_error_is_retried_or_final_and_leaves_nothing_behind(
    postgres: PostgresServer, code: str, error: type[Exception], words: str
) -> None:
    settings = await failing(postgres, 1000, code)
    store = writer(settings)
    with pytest.raises(error, match=re.escape(words)):
        await store.write(gauges(10, times=3), 0)
    assert await points_in(settings) == 0
    postgres.sql(f"DROP TRIGGER fail ON {settings.schema_name}.ingest")
    assert (await store.write(gauges(10, times=3), 0)).stored == 30
    await store.close()


async def test_of_several_servers_the_one_that_answers_is_used(postgres: PostgresServer) -> None:
    url = f"postgresql://tester@127.0.0.1:1,127.0.0.1:{postgres.port}/postgres"
    settings = config(url=url, password=PASSWORD, schema_name=new_schema(), connect_timeout="60s")
    store = writer(settings)
    assert (await store.write(gauges(10, times=3), 0)).stored == 30
    await store.close()


@pytest.mark.parametrize(("synchronous", "value"), [("full", "on"), ("normal", "off")])
async def test_a_power_failure_may_cost_the_last_batches_only_if_that_is_configured(
    postgres: PostgresServer, synchronous: str, value: str
) -> None:
    settings = postgres_config(postgres, synchronous=synchronous)
    store = writer(settings)
    await store.open()
    schema = settings.schema_name
    postgres.sql(
        f"CREATE TABLE {schema}.seen (value text); CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;"
        f"CREATE TRIGGER see BEFORE INSERT ON {schema}.ingest FOR EACH ROW WHEN (NEW.slot >= 0) "
        f"EXECUTE FUNCTION {schema}.see()"
    )
    await store.write(gauges(1, times=1), 0)
    await store.close()
    assert postgres.sql(f"SELECT value FROM {schema}.seen") == value


async def test_a_connection_that_ends_between_batches_costs_nothing(postgres: PostgresServer) -> None:
    settings = postgres_config(postgres)
    store = writer(settings)
    await store.write(gauges(10, times=1), 0)
    connection = await asyncpg.connect(
        host=str(postgres.folder), port=postgres.port, user="postgres", database="postgres"
    )
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'otel-zernel'"
    )
    while await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'otel-zernel'"):
        pass
    await connection.close()
    try:
        written = await store.write(gauges(10, times=1, first=1), 0)
    except Retryable:  # the end of the connection had not arrived yet
        written = await store.write(gauges(10, times=1, first=1), 0)
    assert written.stored == 10
    await store.close()
