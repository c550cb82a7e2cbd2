"""Blocking work in threads, awaited by the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(
    work: Callable[[], T], executor: Executor | None = None, interrupt: Callable[[], object] = lambda: None
) -> T:
    """Runs the work in a thread of `executor` (None: the event loop's own) and returns its result.

    A cancellation calls `interrupt` and then still waits for the end of the work, so that nothing happens behind the
    caller's back. The work must end soon.
    """
    running = asyncio.get_running_loop().run_in_executor(executor, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        interrupt()
        await asyncio.gather(running, return_exceptions=True)
        raise
