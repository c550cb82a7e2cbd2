"""Work in threads is complete when it is awaited, whatever it raises, and leaves nothing behind."""

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from otel_zernel.runtime.threads import ComputingThread, WorkerThread, compute, run_in_thread
from otel_zernel.testing import until


class Large:
    """A result that takes memory."""


def exhausted() -> object:
    return next(iter(()))


@pytest.mark.parametrize("run", [run_in_thread, compute, ComputingThread("test").run, WorkerThread("test").call])
async def test_work_that_exhausts_an_iterator_fails_and_does_not_hang(
    run: Callable[[Callable[[], object]], Awaitable[object]],
) -> None:
    with pytest.raises(RuntimeError, match="StopIteration"):
        async with asyncio.timeout(30):
            await run(exhausted)


async def test_a_thread_keeps_no_result() -> None:
    thread = WorkerThread("test")
    result = weakref.ref(await thread.call(Large))
    await thread.call(int)  # the thread is behind the first call
    gc.collect()
    assert result() is None
    assert not thread.busy


async def test_a_computing_thread_ends_with_its_owner() -> None:
    computing = ComputingThread("computing of a test")
    await computing.run(int)
    assert "computing of a test" in {thread.name for thread in threading.enumerate()}
    del computing
    gc.collect()
    await until(lambda: "computing of a test" not in {thread.name for thread in threading.enumerate()})


class NoMoreThreads(ThreadPoolExecutor):
    """Takes the work, and then starts no thread for it. One that runs does the work."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        super().submit(fn, *args, **named)
        raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("is_busy", [False, True])
async def test_work_for_which_no_thread_could_start_is_done_once(is_busy: bool) -> None:
    done: list[int] = []
    gate = threading.Event()
    threads = NoMoreThreads(1)
    with suppress(RuntimeError):
        threads.submit(gate.wait, 30)
    if not is_busy:
        gate.set()
    asyncio.get_running_loop().set_default_executor(threads)
    await compute(lambda: done.append(1))
    gate.set()
    threads.shutdown()
    assert done == [1]


def test_a_forked_process_starts_a_thread_of_its_own() -> None:
    computing = ComputingThread("test")
    assert asyncio.run(computing.run(lambda: 7)) == 7
    if not (child := os.fork()):
        os._exit(asyncio.run(computing.run(lambda: 7)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
