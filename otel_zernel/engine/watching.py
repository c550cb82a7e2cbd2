"""The schedule of `run --watch`: when changed files become a reload."""

import asyncio
from collections.abc import Callable, Mapping

from otel_zernel.clock import Clock

INTERVAL = 1.0
"""Seconds between two looks at the files."""
SETTLING = 0.25
"""Seconds in which the files must not change again: an editor, or `kubectl`, may still be writing."""

Changed = Callable[[], Mapping[str, str]]
"""The changed files, with something that differs for each content. May block."""


async def watch(changed: Changed, on_change: Callable[[list[str]], None], clock: Clock) -> None:
    """Calls `on_change` with the paths once changed files have settled. Runs until cancelled.

    Files that the reload did not read again, because it was refused, are reported only after another change.
    """
    reported: Mapping[str, str] = {}
    while True:
        await clock.sleep(INTERVAL)
        found = await asyncio.to_thread(changed)
        if not found or found == reported:
            reported = found
            continue
        await clock.sleep(SETTLING)
        if await asyncio.to_thread(changed) == found:
            reported = found
            on_change(sorted(found))
