"""The server is away, full, or refuses: a batch is stored once or waits, and one sentence says why.

Errors of PostgreSQL after which a transaction succeeds at once, and errors after which it never does.

TLS of connections to PostgreSQL, in the modes of libpq.

Transactions in PostgreSQL that are cancelled.
"""

import asyncio
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from otel_zernel.errors import CannotStart, Permanent, Retryable
from otel_zernel_libraries.store.address import PostgresAddress, parse_url
from otel_zernel_libraries.store.config import StoreConfig, WritableStoreConfig
from otel_zernel_libraries.store.postgres.connecting import open_pool
from otel_zernel_libraries.store.postgres.failures import translated
from otel_zernel_libraries.store.postgres.schema import VERSION
from otel_zernel_libraries.store.postgres.transactions import transaction, writing_connection
from otel_zernel_libraries.store.writer import StoreWriter
from tests.exporters.otlp.certificates import Authority
from tests.libraries.store.given import config, gauges, make, points_in, postgres_config, reader, writer, writing
from tests.postgres import PASSWORD, PostgresServer, new_schema, postgres_server
from tests.reliability.journals.disks import fill, small_disk


@pytest.fixture
def settings(postgres: PostgresServer) -> WritableStoreConfig:
    return postgres_config(postgres)


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with postgres_server() as server:
        yield server


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (asyncpg.InterfaceError("cannot call Connection.fetch(): it is released"), "the connection was lost"),
        (asyncpg.InternalClientError("got result for unknown protocol state 3"), "the connection was lost"),
        (
            asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation"),
            "connection was lost",
        ),
        (OSError("Multiple exceptions: [Errno 111] ('::1', 5432, 0, 0)"), "no server can be reached there; check the"),
    ],
)
def test_an_error_of_the_client_library_is_a_sentence_about_the_connection(raised: Exception, sentence: str) -> None:
    address = parse_url("postgresql://u@db/x")
    assert isinstance(address, PostgresAddress)
    with pytest.raises(Retryable) as caught, translated(address):
        raise raised
    assert sentence in str(caught.value)
    assert str(raised.args[0]) not in str(caught.value)


async def test_a_server_that_is_away_delays_a_start_and_a_batch(own_server: PostgresServer) -> None:
    settings = postgres_config(own_server)
    async with writing(settings) as store:
        own_server.stop()
        with pytest.raises(Retryable, match=r"no connection to .*postgres: "):
            await store.open()
        with pytest.raises(Retryable, match=r"no connection to .*postgres: "):
            await store.write(gauges(5, times=1), 0)
        own_server.start()
        assert (await store.write(gauges(5, times=1), 0)).stored == 5


async def test_a_server_that_restarts_or_crashes_in_the_middle_loses_and_doubles_nothing(
    own_server: PostgresServer,
) -> None:
    settings = postgres_config(own_server)
    async with writing(settings) as store:
        acknowledged = 0

        async def insist(number: int) -> None:
            nonlocal acknowledged
            while True:
                try:
                    written = await store.write(gauges(100, times=5, first=5 * number), 0)
                except Retryable:
                    await asyncio.sleep(0.05)
                else:
                    assert written.conflicting == 0
                    acknowledged += written.stored + written.repeated
                    return

        async def insist_on(numbers: range) -> None:
            for number in numbers:
                await insist(number)

        tasks = [asyncio.create_task(insist_on(range(begin, 90, 3))) for begin in range(3)]
        for signal, enough in (("fast", 1000), ("immediate", 3000)):
            while acknowledged < enough:  # noqa: ASYNC110  # the number, not an event
                await asyncio.sleep(0.001)
            await asyncio.to_thread(own_server.stop, signal)
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own_server.start)
        await asyncio.gather(*tasks)
    assert acknowledged == 90 * 500
    assert await points_in(settings) == 90 * 500


async def test_a_wrong_password_is_an_error_at_the_start_and_is_never_printed(postgres: PostgresServer) -> None:
    async with writing(config(url=postgres.tcp_url(), password="hunter2secret")) as store:
        with pytest.raises(CannotStart, match="the server does not accept the user or the password") as refused:
            await store.open()
        assert "hunter2secret" not in str(refused.value)
        with pytest.raises(Retryable, match="the server does not accept the user or the password"):
            await store.write(gauges(1, times=1), 0)


async def test_a_password_comes_from_a_file_that_may_change(postgres: PostgresServer, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("wrong\n")
    settings = config(url=postgres.tcp_url(), password_file=str(file), schema_name=new_schema())
    async with writing(settings) as store:
        with pytest.raises(CannotStart):
            await store.open()
        file.write_text(f"{PASSWORD}\n")
        await store.open()
        assert (await store.write(gauges(5, times=1), 0)).stored == 5
    file.unlink()
    with pytest.raises(CannotStart, match=r"exporters::sql::password_file: cannot read .*: No such file or directory"):
        await writer(settings).open()


async def test_a_missing_database_is_an_error_at_the_start(postgres: PostgresServer) -> None:
    async with writing(config(url=postgres.url("nowhere"))) as store:
        with pytest.raises(CannotStart, match=r"/nowhere: the database does not exist; create it, or correct the url"):
            await store.open()


async def test_a_user_without_rights_is_an_error_at_the_start(postgres: PostgresServer) -> None:
    postgres.sql("CREATE DATABASE strict")
    postgres.sql("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    async with writing(config(url=postgres.tcp_url("strict", "guest"), password="guest")) as store:
        with pytest.raises(
            CannotStart, match=r"the user lacks a right; grant it .permission denied for database strict"
        ):
            await store.open()


async def test_a_server_that_accepts_no_writes_delays_a_batch(
    settings: WritableStoreConfig, postgres: PostgresServer
) -> None:
    await make(settings)
    postgres.sql("CREATE ROLE standby LOGIN SUPERUSER; ALTER ROLE standby SET default_transaction_read_only = on")
    url = settings.url.replace("postgres@", "standby@")
    async with writing(settings.model_copy(update={"url": url})) as store:
        with pytest.raises(Retryable, match="the server accepts no writes, and may be a standby"):
            await store.write(gauges(1, times=1), 0)


async def test_a_connection_that_is_ended_in_the_middle_delays_a_batch(
    settings: WritableStoreConfig, store: StoreWriter, postgres: PostgresServer
) -> None:
    await store.write(gauges(5, times=1), 0)
    postgres.sql(f"BEGIN; LOCK {settings.schema_name}.ingest; COMMIT")
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'otel-zernel'"
    postgres.sql(ended)
    try:
        await store.write(gauges(5, times=1, first=1), 0)
    except Retryable:
        await store.write(gauges(5, times=1, first=1), 0)
    assert await points_in(settings) == 10


async def test_a_schema_that_is_dropped_or_emptied_is_made_again(
    settings: WritableStoreConfig, store: StoreWriter, postgres: PostgresServer
) -> None:
    await store.write(gauges(5, times=1), 0)
    postgres.sql(f"DROP SCHEMA {settings.schema_name} CASCADE")
    with pytest.raises(Retryable, match="missing"):
        await store.write(gauges(5, times=1), 0)
    assert (await store.write(gauges(5, times=1), 0)).stored == 5
    assert await points_in(settings) == 5


async def test_the_schema_of_a_newer_release_is_refused(
    settings: WritableStoreConfig, postgres: PostgresServer
) -> None:
    await make(settings)
    postgres.sql(f"UPDATE {settings.schema_name}.schema_version SET version = {VERSION + 1}")
    for opening in (writer(settings), reader(settings)):
        with pytest.raises(CannotStart, match=f"has version {VERSION + 1}, and this release knows {VERSION}"):
            await opening.open()
        await opening.close()


async def test_a_reader_of_a_database_without_tables_says_that_a_collector_has_to_start(
    postgres: PostgresServer,
) -> None:
    store = reader(postgres_config(postgres))
    with pytest.raises(CannotStart, match="start a collector with the sql exporter first, or correct schema_name"):
        await store.open()
    await store.close()


async def test_a_full_disk_of_the_server_stores_nothing_of_a_batch_and_all_of_it_later(
    own_server: PostgresServer,
) -> None:
    with small_disk(own_server.folder / "disk", "24m") as disk:
        space = disk / "space"
        space.mkdir()
        space.chmod(0o700)
        shutil.chown(space, own_server.data.owner())
        own_server.sql(f"CREATE TABLESPACE small LOCATION '{space}'")
        own_server.sql("ALTER SYSTEM SET default_tablespace = 'small'; ")
        own_server.sql("SELECT pg_reload_conf()")
        settings = postgres_config(own_server)
        async with writing(settings) as store:
            await store.write(gauges(10, times=1), 0)
            filler = fill(disk)

            async def write_until_it_fails() -> None:
                for first in range(1, 100):
                    await store.write(gauges(500, times=10, first=10 * first), 0)

            with pytest.raises(Retryable, match="the disk of the server is full; make room or shorten the retention"):
                await write_until_it_fails()
            stored = await points_in(settings)
            assert (stored - 10) % 5000 == 0
            filler.unlink()
            assert (await store.write(gauges(500, times=10, first=10_000), 0)).stored == 5000
            assert await points_in(settings) == stored + 5000


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the name of the host is unknown; correct the url"),
        (ConnectionRefusedError(111, "Connection refused"), "no server listens there; start it, or correct the url"),
        (TimeoutError(), "the server does not answer in time; check the url, the network and its firewalls"),
    ],
)
def test_a_connection_that_fails_says_what_to_change(error: Exception, words: str) -> None:
    address = PostgresAddress((("db.example.com", 5432),), None, "metrics")
    with pytest.raises(Retryable) as raised, translated(address):
        raise error
    assert str(raised.value) == f"no connection to db.example.com:5432/metrics: {words}"


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
    await make(settings)
    server.sql(_FAIL.format(schema=settings.schema_name, times=times, code=code))
    return settings


@pytest.mark.parametrize("code", ["40P01", "40001"])
async def test_a_deadlock_is_repeated_at_once(postgres: PostgresServer, code: str) -> None:
    settings = await failing(postgres, 2, code)
    async with writing(settings) as store:
        assert (await store.write(gauges(10, times=3), 0)).stored == 30
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
    async with writing(settings) as store:
        with pytest.raises(error, match=re.escape(words)):
            await store.write(gauges(10, times=3), 0)
        assert await points_in(settings) == 0
        postgres.sql(f"DROP TRIGGER fail ON {settings.schema_name}.ingest")
        assert (await store.write(gauges(10, times=3), 0)).stored == 30


async def test_of_several_servers_the_one_that_answers_is_used(postgres: PostgresServer) -> None:
    url = f"postgresql://tester@127.0.0.1:1,127.0.0.1:{postgres.port}/postgres"
    settings = config(url=url, password=PASSWORD, schema_name=new_schema(), connect_timeout="60s")
    async with writing(settings) as store:
        assert (await store.write(gauges(10, times=3), 0)).stored == 30


@pytest.mark.parametrize(("synchronous", "value"), [("full", "on"), ("normal", "off")])
async def test_a_power_failure_may_cost_the_last_batches_only_if_that_is_configured(
    postgres: PostgresServer, synchronous: str, value: str
) -> None:
    settings = postgres_config(postgres, synchronous=synchronous)
    async with writing(settings) as store:
        await store.open()
        schema = settings.schema_name
        postgres.sql(
            f"CREATE TABLE {schema}.seen (value text); "
            f"CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN INSERT INTO {schema}.seen VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;"
            f"CREATE TRIGGER see BEFORE INSERT ON {schema}.ingest FOR EACH ROW WHEN (NEW.slot >= 0) "
            f"EXECUTE FUNCTION {schema}.see()"
        )
        await store.write(gauges(1, times=1), 0)
    assert postgres.sql(f"SELECT value FROM {schema}.seen") == value


async def test_a_connection_that_ends_between_batches_costs_nothing(
    store: StoreWriter, postgres: PostgresServer
) -> None:
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


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Iterator[PostgresServer]:
    """A server that accepts TLS only. Its certificate is for 127.0.0.1, not for `localhost`."""
    with postgres_server() as server:
        server.stop()
        files = authority.issue("db.example.com", "server")
        for name, source in (("server.crt", files.cert_file), ("server.key", files.key_file)):
            shutil.copy(source, server.data / name)
            shutil.chown(server.data / name, server.data.owner())
            (server.data / name).chmod(0o600)
        (server.data / "pg_hba.conf").write_text("local all all trust\nhostssl all all all scram-sha-256\n")
        server.start("ssl=on")
        yield server


async def stored(server: PostgresServer, tls: dict[str, Any], host: str = "localhost") -> int:
    url = server.tcp_url().replace("127.0.0.1", host)
    settings = config(url=url, password=PASSWORD, tls=tls, schema_name=new_schema(), connect_timeout="60s")
    store = writer(settings)
    try:
        await store.open()
        return (await store.write(gauges(5, times=1), 0)).stored
    finally:
        await store.close()


@pytest.mark.parametrize("mode", ["prefer", "require"])
async def test_a_mode_without_verification_accepts_any_certificate(server: PostgresServer, mode: str) -> None:
    assert await stored(server, {"mode": mode}) == 5


@pytest.mark.parametrize(("mode", "host"), [("verify-ca", "localhost"), ("verify-full", "127.0.0.1")])
async def test_a_certificate_of_the_authority_is_accepted(
    server: PostgresServer, authority: Authority, mode: str, host: str
) -> None:
    assert await stored(server, {"mode": mode, "ca_file": authority.ca_file}, host) == 5


async def test_a_certificate_of_another_name_is_refused(server: PostgresServer, authority: Authority) -> None:
    with pytest.raises(CannotStart, match=r"the certificate of localhost.* is not accepted: .*mismatch"):
        await stored(server, {"mode": "verify-full", "ca_file": authority.ca_file})


async def test_a_certificate_of_another_authority_is_refused(server: PostgresServer, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    with pytest.raises(CannotStart, match=r"the certificate of localhost.* is not accepted"):
        await stored(server, {"mode": "verify-full", "ca_file": other.ca_file})


async def test_a_server_that_requires_tls_refuses_a_plain_connection(server: PostgresServer) -> None:
    with pytest.raises(CannotStart, match="the server does not accept the user from here"):
        await stored(server, {"mode": "disable"})


async def test_a_server_without_tls_is_refused_if_it_is_required(postgres: PostgresServer) -> None:
    with pytest.raises(Retryable, match=r"no connection to localhost.*refuses TLS \(SSL\)"):
        await stored(postgres, {"mode": "require"})


async def test_unusable_files_are_errors_at_the_start(postgres: PostgresServer, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.touch()
    with pytest.raises(CannotStart, match=r"exporters::sql::tls::ca_file: .*empty.pem cannot be used"):
        await stored(postgres, {"mode": "verify-full", "ca_file": str(empty)})
    pair = {"cert_file": str(empty), "key_file": str(empty)}
    with pytest.raises(CannotStart, match=r"exporters::sql::tls::cert_file: .* are not a PEM certificate and its key"):
        await stored(postgres, {"mode": "require", **pair})


async def test_a_cancellation_within_blocks_that_both_break_the_connection_stays_a_cancellation(
    postgres: PostgresServer,
) -> None:
    """Another error in its place would keep a cancelled task alive, and the collector could not stop."""
    settings = StoreConfig(url=postgres.url())
    pool: asyncpg.Pool[asyncpg.Record] = await open_pool(settings.address, settings, "exporters::sql", writable=True)  # type: ignore[arg-type]
    with pytest.raises(asyncio.CancelledError):
        async with writing_connection(pool) as connection, transaction(connection):
            raise asyncio.CancelledError
    async with writing_connection(pool) as connection:
        assert await connection.fetchval("SELECT 1") == 1
    await pool.close()
