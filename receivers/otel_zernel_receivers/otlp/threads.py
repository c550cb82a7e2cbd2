"""Work on many bytes, which must not delay the other requests."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from otel_zernel.runtime.threads import run_in_thread

T = TypeVar("T")

LARGE: Final = 128 << 10
"""Bytes. Decoding 128 KiB of JSON takes 4 ms, and decompressing to 128 KiB 0.5 ms."""


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Runs a function in a thread. A cancellation waits for its end, since its arguments take memory until then.

    A function that has not begun is not called then.
    """
    cancelled = threading.Event()

    def work() -> T:
        if cancelled.is_set():
            raise InterruptedError("the request was given up")
        return function(*arguments)

    return await run_in_thread(work, interrupt=cancelled.set)


async def in_thread_if_large(size: int, function: Callable[..., T], *arguments: object) -> T:
    """Runs a function that works on `size` bytes, as `in_thread` if they are many."""
    return await in_thread(function, *arguments) if size >= LARGE else function(*arguments)
