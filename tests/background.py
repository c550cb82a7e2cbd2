"""Work that goes on while a test does something else."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, Any]) -> AsyncIterator[asyncio.Task[Any]]:
    """A task with this work, which is cancelled at the end of the block. Raises its error if it has failed by then."""
    task = asyncio.create_task(work)
    try:
        yield task
        if task.done() and not task.cancelled():
            task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
