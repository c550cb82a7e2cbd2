"""Blocking work, and work that computes for long, in threads that the event loop awaits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import cache
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
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


async def compute(work: Callable[[], T], interrupt: Callable[[], object] = lambda: None) -> T:
    """Runs work that computes for long and waits for nothing, as `run_in_thread`.

    All such work shares one thread, so the event loop competes with one thread for Python's lock. If that thread
    cannot start, the event loop does the work.
    """
    try:
        thread = _computing()
    except RuntimeError:
        return work()
    return await run_in_thread(work, thread, interrupt)


class WorkerThread(Executor):
    """A daemon thread that runs one call after the other. One that hangs blocks neither the event loop nor the exit."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: Future[Any] | None = None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """Whether a call is running."""
        return self._last is not None and not self._last.done()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs the function after the calls before."""
        future: Future[T] = Future()
        self._last = future
        self._calls.put((future, lambda: fn(*args, **kwargs)))
        return future

    async def call(self, function: Callable[[], T]) -> T:
        """Runs the function after the calls before, and returns its result, or raises its exception."""
        return await asyncio.wrap_future(self.submit(function))

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """Ends the thread after the calls before and then `last`. Does not wait."""
        self._calls.put((Future(), last))
        self._calls.put(None)

    def _work(self) -> None:
        for future, function in iter(self._calls.get, None):
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001  # raised again in `call`
                future.set_exception(error)
            del future, function


@cache
def _computing() -> WorkerThread:
    return WorkerThread("computing")
