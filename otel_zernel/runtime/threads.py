"""Blocking work, and work that computes for long, in threads that the event loop awaits."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar
from weakref import finalize, ref

P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(
    work: Callable[[], T], executor: Executor | None = None, interrupt: Callable[[], object] = lambda: None
) -> T:
    """Runs the work in a thread of `executor` (None: the event loop's own) and returns its result.

    A cancellation calls `interrupt` and then still waits for the end of the work, so that nothing happens behind the
    caller's back. The work must end soon.
    """
    return await _complete(asyncio.get_running_loop().run_in_executor(executor, partial(_run, work)), interrupt)


async def compute(work: Callable[[], T], interrupt: Callable[[], object] = lambda: None) -> T:
    """As `run_in_thread`, for work that waits for nothing. If no thread can start, the event loop does it."""
    outcome: Future[T] = Future()
    try:
        asyncio.get_running_loop().run_in_executor(None, _fulfil, outcome, work)
    except RuntimeError:  # a thread that runs may still take the work
        if outcome.cancel():
            return work()
    return await _complete(asyncio.wrap_future(outcome), interrupt)


async def _complete(running: "asyncio.Future[T]", interrupt: Callable[[], object]) -> T:
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        interrupt()
        await asyncio.gather(running, return_exceptions=True)
        raise


def _fulfil(outcome: Future[T], work: Callable[[], T]) -> None:
    if outcome.set_running_or_notify_cancel():
        try:
            outcome.set_result(_run(work))
        except BaseException as error:  # noqa: BLE001  # raised again where it is awaited
            outcome.set_exception(error)


def _run(work: Callable[[], T]) -> T:
    """The result of the work. A future cannot hold a `StopIteration`: whoever awaits it would wait for ever."""
    try:
        return work()
    except StopIteration as error:
        raise RuntimeError("the work raised StopIteration") from error


class WorkerThread(Executor):
    """A daemon thread that runs one call after the other. One that hangs blocks neither the event loop nor the exit."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._last: ref[Future[Any]] | None = None
        """Its result may be large."""
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs. It does not in a process that was forked from this one."""
        return self._thread.is_alive()

    @property
    def busy(self) -> bool:
        """Whether a call is running."""
        last = self._last() if self._last else None
        return last is not None and not last.done()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs the function after the calls before."""
        future: Future[T] = Future()
        self._last = ref(future)
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
            _fulfil(future, function)
            del future, function


class ComputingThread:
    """The thread of one component for work that takes long. It starts with the first work, and ends with this object.

    If it cannot start, the event loop does the work.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: WorkerThread | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """As `run_in_thread`."""
        if self._thread is None or not self._thread.is_alive:
            try:
                self._thread = WorkerThread(self._name)
            except RuntimeError:
                return work()
            finalize(self, self._thread.close)
        return await run_in_thread(work, self._thread)

    def close(self) -> None:
        """Ends the thread after its work. Does not wait."""
        if self._thread:
            self._thread.close()
            self._thread = None
