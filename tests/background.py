"""Work that goes on while a test does something else."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """A task that does the work. It is cancelled at the end of the block. If it has failed by then, so does the test."""
    task = asyncio.create_task(work)
    try:
        yield task
        if task.done() and not task.cancelled():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
