"""A writer is killed at any moment: its acknowledged batches are stored, and every batch is whole or absent."""

import asyncio
import json
import os
import random
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from otel_zernel_libraries.store.config import WritableStoreConfig
from tests.libraries.store.endless import SIZE, numbered
from tests.libraries.store.given import postgres_config, read_all, sqlite_config, writing

TIMES = (4, pytest.param(int(os.environ.get("SOAK_KILLS", "100")), marks=pytest.mark.soak))


async def killed(settings: WritableStoreConfig, first: int, after: int, random: random.Random) -> int:
    """Starts the program, kills it some time after so many batches, and returns the last acknowledged number."""
    words = json.dumps({"url": settings.url, "schema_name": settings.schema_name, "connect_timeout": "60s"})
    command = [sys.executable, "-m", "tests.libraries.store.endless", words, str(first)]
    program = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert program.stdout
    last = first - 1
    for _ in range(after):
        last = int(await program.stdout.readline())
    await asyncio.sleep(random.uniform(0, 0.02))
    program.kill()
    rest = (await program.stdout.read()).split()
    await program.wait()
    return int(rest[-1]) if rest else last


async def batches_in(settings: WritableStoreConfig) -> Counter[int]:
    """The number of points of each batch that is stored."""
    found: Counter[int] = Counter()
    for batch in await read_all(settings, size=5000):
        for resource in batch.metrics.resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                points: list[Any] = [*metric.gauge.data_points, *metric.histogram.data_points]
                for point in points:
                    found[(point.time_unix_nano // 10**9 - 1_700_000_000) // 10] += 1
    return found


async def settled_batches(settings: WritableStoreConfig) -> Counter[int]:
    """The same, once the server has done what the killed writer sent last: a reading takes several queries."""
    before, now = Counter[int](), await batches_in(settings)
    while now != before:
        before, now = now, await batches_in(settings)
    return now


async def kill_often(settings: WritableStoreConfig, times: int) -> None:
    rng = random.Random(times)
    acknowledged: set[int] = set()
    first = 0
    for _ in range(times):
        last = await killed(settings, first, rng.randrange(1, 6), rng)
        acknowledged.update(range(first, last + 1))
        first = last + 1  # it may have stored this batch, too, without having said so
        stored = await settled_batches(settings)
        assert acknowledged <= stored.keys()
        assert set(stored.values()) == {SIZE}
        assert stored.keys() - acknowledged <= {first}
    async with writing(settings) as store:
        for number in sorted(acknowledged | {first}):
            assert (await store.write(numbered(number), 0)).conflicting == 0
    stored = await batches_in(settings)
    assert stored == dict.fromkeys(acknowledged | {first}, SIZE)


@pytest.mark.parametrize("times", TIMES)
async def test_sqlite_survives_kills(tmp_path: Path, times: int) -> None:
    await kill_often(sqlite_config(tmp_path, connect_timeout="60s"), times)


@pytest.mark.parametrize("times", TIMES)
async def test_postgresql_survives_kills_of_its_writer(request: pytest.FixtureRequest, times: int) -> None:
    await kill_often(postgres_config(request.getfixturevalue("postgres")), times)
