"""Named pipes are read like files, once, with or without a writer."""

import asyncio
import gzip
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from tests.background import in_background
from tests.receivers.csv.running import HEADER, LAYOUT, receiver, rows, values_of

TEXT = (HEADER + rows(1, 3)).encode()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


@asynccontextmanager
async def reading(pipe: Path) -> AsyncIterator[tuple[asyncio.Task[Any], Downstream]]:
    downstream = Downstream()
    context = make_context(id_="csv", clock=SystemClock())
    async with in_background(receiver(context, files=[str(pipe)], layout=LAYOUT).run(downstream)) as running:
        yield running, downstream


def is_open(pipe: Path) -> bool:
    """Whether this process has opened the pipe."""
    return any(os.path.realpath(link) == str(pipe) for link in Path("/proc/self/fd").iterdir())


async def test_a_pipe_without_a_writer_is_waited_for_and_a_cancellation_ends_that(pipe: Path) -> None:
    async with reading(pipe) as (running, downstream):
        await until(lambda: is_open(pipe) or running.done())
        assert not running.done()
        running.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert not downstream.batches


@pytest.mark.parametrize("content", [TEXT, gzip.compress(TEXT)], ids=["plain", "gzip"])
async def test_the_end_of_the_writer_is_the_end_of_the_input(pipe: Path, content: bytes) -> None:
    async with reading(pipe) as (running, downstream):
        await asyncio.to_thread(pipe.write_bytes, content)
        async with asyncio.timeout(60):
            await running
        assert values_of(downstream) == [1, 2]


async def test_rows_are_emitted_while_the_writer_goes_on(pipe: Path) -> None:
    async with reading(pipe) as (running, downstream):
        writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
        os.write(writer, TEXT)
        await until(lambda: downstream.point_count == 2)
        os.write(writer, rows(3, 4).encode())
        await until(lambda: downstream.point_count == 3)
        assert not running.done()
        os.close(writer)
        async with asyncio.timeout(60):
            await running
        assert values_of(downstream) == [1, 2, 3]
