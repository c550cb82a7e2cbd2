"""The memory of this process: how much it uses and may use, and how it gives some back."""

import ctypes
import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass

from otel_zernel.runtime.memory import memory_limit, resident_memory

_one_at_a_time = threading.Lock()
"""Several limiters of one process must not free memory at the same time."""


def free_memory(full: bool) -> None:
    """Collects garbage and returns free memory to the kernel. Does nothing if another thread does the same.

    The garbage collector stops the whole process, for about 20 ms if `full`, otherwise under 1 ms. Without `full`,
    only young objects are collected. `malloc_trim` takes about 40 ms after 500 MB were freed; other threads run
    meanwhile. Python's own objects are mostly freed without either of them.
    """
    if not _one_at_a_time.acquire(blocking=False):
        return
    try:
        gc.collect(2 if full else 1)
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it
        if trim is not None:
            trim(0)
    finally:
        _one_at_a_time.release()


def in_thread(work: Callable[[], None]) -> threading.Thread:
    """Starts the work in a daemon thread."""
    thread = threading.Thread(target=work, name="memory_limiter", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True)
class MemorySources:
    """The functions by which the limiter sees and changes the memory of its process."""

    used: Callable[[], int] = resident_memory
    available: Callable[[], int | None] = memory_limit
    free: Callable[[bool], None] = free_memory
    start: Callable[[Callable[[], None]], threading.Thread] = in_thread
