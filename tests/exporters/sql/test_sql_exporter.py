"""The exporter in a collector: its configuration, its counters, and its queue."""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from pydantic import ValidationError

from otel_zernel.batch import Batch
from otel_zernel.config.load import load
from otel_zernel.config.schema import validate
from otel_zernel.errors import ConfigError, Retryable
from otel_zernel.registry import Registry
from otel_zernel.testing import Dropped, FakeClock, make_context, until
from otel_zernel_exporters.sql import SqlExporter
from otel_zernel_exporters.sql.config import SqlConfig
from tests.core.parts import batch_of
from tests.libraries.store.given import DAY_NS, NOW_NS, gauges
from tests.postgres import PostgresServer, new_schema, postgres_server

README = Path(__file__).parents[3] / "exporters/otel_zernel_exporters/sql/README.md"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


def configured(**settings: Any) -> SqlConfig:
    return SqlConfig.model_validate(settings)


def exporter(config: SqlConfig, clock: FakeClock | None = None) -> SqlExporter:
    return SqlExporter(config, make_context("exporters", "sql", clock=clock or FakeClock(NOW_NS)))


def on(server: PostgresServer, **settings: Any) -> SqlConfig:
    return configured(url=server.url(), schema_name=new_schema(), connect_timeout="60s", **settings)


def own_metrics(reader: InMemoryMetricReader) -> dict[str, int]:
    data = reader.get_metrics_data()
    found = (
        [metric for resource in data.resource_metrics for metric in resource.scope_metrics[0].metrics] if data else []
    )
    return {metric.name: metric.data.data_points[0].value for metric in found}  # type: ignore[union-attr,misc]


async def test_it_counts_what_it_stored_and_what_was_there_before(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    context = make_context("exporters", "sql", meter=provider.get_meter("test"), clock=FakeClock(NOW_NS))
    async with SqlExporter(configured(url=f"sqlite://{tmp_path}/m.db"), context) as it:
        await it.export(batch_of(1.0, 2.0))
        await it.export(batch_of(1.0, 3.0))
    assert own_metrics(reader) == {"zernel.sql.stored": 2, "zernel.sql.repeated": 1}
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"conflicting_value": 1}
    provider.shutdown()


async def test_it_counts_points_that_are_too_old(tmp_path: Path) -> None:
    it = exporter(configured(url=f"sqlite://{tmp_path}/m.db", retention="48h"))
    async with it:
        await it.export(Batch.join([gauges(3, times=1, begin_ns=NOW_NS - 3 * DAY_NS), gauges(2, times=1)]))
    assert isinstance(it.context.drop, Dropped)
    assert it.context.drop.counts == {"too_old": 3}


class SlowClock(FakeClock):
    """Goes on by itself only when the test lets it."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0.01)


async def test_it_removes_old_points_while_it_runs(tmp_path: Path) -> None:
    clock = SlowClock(NOW_NS)
    async with exporter(configured(url=f"sqlite://{tmp_path}/m.db", retention="48h"), clock) as it:
        await it.export(gauges(3, times=1))
        clock.advance(3 * 86_400)
        connection = sqlite3.connect(tmp_path / "m.db")
        await until(lambda: connection.execute("SELECT count(*) FROM points").fetchone() == (0,))
        connection.close()


async def test_a_database_that_is_away_delays_no_start(server: PostgresServer) -> None:
    server.stop()
    async with exporter(on(server)) as it:
        with pytest.raises(Retryable, match="no connection to"):
            await it.export(gauges(3, times=1))
        server.start()
        await it.export(gauges(3, times=1))
        await it.export(gauges(3, times=1))


async def test_many_batches_at_once_take_turns_at_the_connections(server: PostgresServer) -> None:
    settings = on(server, pool_size=2)
    async with exporter(settings) as it:
        await asyncio.gather(*(it.export(gauges(20, times=2, first=2 * number)) for number in range(12)))
    assert server.sql(f"SELECT count(*) FROM {settings.schema_name}.points") == "480"


async def test_the_query_of_the_readme_answers(server: PostgresServer) -> None:
    query = README.read_text("utf-8").partition("```sql\n")[2].partition("```")[0]
    settings = on(server)
    async with exporter(settings) as it:
        await it.export(gauges(4, times=1, begin_ns=time.time_ns()))
        await it.export(gauges(4, times=1, begin_ns=time.time_ns() - 2 * 3600 * 10**9))
    assert server.sql(query.replace("otel_zernel.", f"{settings.schema_name}.")) == "node|1.5"


async def test_a_cancelled_export_may_be_repeated(server: PostgresServer, tmp_path: Path) -> None:
    for settings in (on(server), configured(url=f"sqlite://{tmp_path}/m.db")):
        async with exporter(settings) as it:
            for wait in (0.0, 0.001, 0.005, 0.02):
                exporting = asyncio.create_task(it.export(gauges(50, times=20)))
                await asyncio.sleep(wait)
                exporting.cancel()
                await asyncio.gather(exporting, return_exceptions=True)
            await it.export(gauges(50, times=20))
            assert isinstance(it.context.drop, Dropped)
            assert it.context.drop.counts == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": ""}, "not the URL of a database; write sqlite:///"),
        ({"url": "mysql://host/db"}, "not the URL of a database"),
        ({"url": "sqlite://relative.db"}, "with three slashes in all"),
        (
            {"url": "postgresql://user:secret@host/db"},
            "a password must not be in the URL: set password or password_file",
        ),
        ({"url": "postgresql://user:sec/ret@host/db"}, "a password must not be in the URL"),
        ({"url": "postgresql://user:sec#ret@host/db"}, "a password must not be in the URL"),
        ({"url": "postgresql://host"}, "the URL names no database"),
        ({"url": "postgresql:///db"}, "the URL names no host"),
        ({"url": "postgresql://host:port/db"}, "Port could not be cast"),
        ({"url": "postgresql://host/db?sslmode=require"}, "sslmode must not be in the URL: use the settings"),
        ({"url": "sqlite:///m.db", "schema_name": "Robert'; DROP TABLE"}, "schema_name"),
        (
            {"url": "sqlite:///m.db", "password": "a", "password_file": "b"},
            "password and password_file exclude each other",
        ),
        ({"url": "sqlite:///m.db", "retention": "1h"}, r"retention \(1h\) must not be shorter than partition \(24h\)"),
        ({"url": "sqlite:///m.db", "tls": {"ca_file": "a"}}, "ca_file is not used with mode prefer"),
        ({"url": "sqlite:///m.db", "tls": {"cert_file": "a"}}, "cert_file and key_file belong together"),
        ({"url": "sqlite:///m.db", "tls": {"cert_file": "a", "key_file": "b"}}, "cert_file needs TLS"),
    ],
)
def test_a_wrong_setting_is_refused_with_one_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words) as refused:
        configured(**settings)
    assert "secret" not in str(refused.value.errors()[0]["msg"])


def test_the_parts_of_a_url() -> None:
    several = configured(url="postgresql://u%40x@h1,h2:6000/db").address
    assert str(several) == "h1:5432,h2:6000/db"
    assert several.user == "u@x"  # type: ignore[union-attr]
    assert str(configured(url="postgresql://u@/db?host=/run/pg:6000").address) == "/run/pg/db"
    assert str(configured(url="sqlite:////var/lib/m.db").address) == "/var/lib/m.db"


def test_a_pipeline_of_another_signal_is_refused_with_one_sentence() -> None:
    text = """
receivers: {otlp: {protocols: {grpc: {}}}}
exporters: {sql: {url: "sqlite:///m.db"}}
service: {pipelines: {logs: {receivers: [otlp], exporters: [sql]}}}
"""
    with pytest.raises(ConfigError, match='exporter "sql" does not accept logs; remove it from the pipeline'):
        validate(load([f"yaml:{text}"], [], {}), Registry.installed(), {})


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"url": "postgresql://db.example.com/m"}, True),
        ({"url": "postgresql://db.example.com/m", "tls": {"mode": "verify-full"}}, False),
        ({"url": "postgresql://localhost/m"}, False),
        ({"url": "postgresql:///m?host=/run/postgresql"}, False),
        ({"url": "sqlite:///m.db"}, False),
    ],
)
def test_a_server_that_nobody_verifies_is_a_warning(settings: dict[str, Any], warned: bool) -> None:
    assert [key for key, _ in SqlExporter.advice(configured(**settings))] == ["tls::mode"] * warned


async def test_a_removal_that_fails_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without the removal, the disk would be full one day."""
    clock = SlowClock(NOW_NS)
    async with exporter(configured(url=f"sqlite://{tmp_path}/m.db", retention="48h"), clock) as it:
        await it.export(gauges(3, times=1))
        connection = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        connection.execute("CREATE TRIGGER held BEFORE DELETE ON points BEGIN SELECT RAISE(ABORT, 'held'); END")
        clock.advance(3 * 86_400)
        await until(lambda: "Cannot remove old points; trying again" in caplog.text)
        connection.execute("DROP TRIGGER held")
        await until(lambda: connection.execute("SELECT count(*) FROM points").fetchone() == (0,))
        connection.close()
