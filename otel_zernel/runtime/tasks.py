"""The ends of tasks."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancels the tasks, and waits until they have ended. Their errors are dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def run_until(work: Coroutine[Any, Any, Any], end: Coroutine[Any, Any, Any], name: str) -> bool:
    """Runs both until one has ended, and cancels the other. Returns whether the work has ended, or raises its error.

    For streams: `work` sends to a client, and `end` waits until the client has gone.
    """
    working, ending = asyncio.create_task(work, name=name), asyncio.create_task(end, name=f"{name}: end")
    try:
        await asyncio.wait([working, ending], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        return working.done()
    finally:
        await cancel(working, ending)
