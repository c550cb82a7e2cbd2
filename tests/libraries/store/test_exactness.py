"""What is read back equals what was written."""

import tempfile
from pathlib import Path

from hypothesis import given
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.libraries.store.given import any_data, flat, postgres_config, read_all, sqlite_config, write_twice
from tests.postgres import PostgresServer


async def written_and_read(settings: WritableStoreConfig, data: MetricsData) -> list[MetricsData]:
    await write_twice(settings, Batch(metrics=data))
    return [batch.metrics for batch in await read_all(settings)]


@given(any_data())
async def test_sqlite_gives_back_exactly_the_points(data: MetricsData) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = sqlite_config(Path(folder), synchronous="normal")
        assert flat(await written_and_read(settings, data)) == flat([data])


@given(any_data())
async def test_postgresql_gives_back_exactly_the_points_that_it_got(
    postgres: PostgresServer, data: MetricsData
) -> None:
    settings = postgres_config(postgres)
    assert flat(await written_and_read(settings, data)) == flat([data])
