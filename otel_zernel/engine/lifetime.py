"""The start and the end of components and tasks. Errors become one sentence; a task that hangs is abandoned."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

from otel_zernel.engine.unbroken import is_any_ending
from otel_zernel.errors import CannotStart

LONGEST_END = 1.0
"""Seconds that a cancelled task may need to end, as `Receiver.run` promises."""
LONGEST_CLOSING = 3.0
"""Seconds that a component may need to close its resources."""

Key = TypeVar("Key")

_logger = logging.getLogger("otel_zernel.engine.service")


@contextmanager
def starting(path: str) -> Iterator[None]:
    """Turns every exception inside into a `CannotStart` that names the component's path."""
    try:
        yield
    except CannotStart:
        raise
    except Exception as error:
        _logger.debug("A component cannot start", exc_info=True)
        raise CannotStart(f"{path}: cannot start: {type(error).__name__}: {error}") from error


@asynccontextmanager
async def opened(
    component: AbstractAsyncContextManager[Any],
    path: str,
    longest: float = LONGEST_CLOSING,
    longest_start: float | None = None,
) -> AsyncIterator[None]:
    """Enters the component. Raises `CannotStart` if that fails, or takes longer than `longest_start` s.

    Errors while leaving are logged. After `longest` s the component is abandoned.
    """
    try:
        with starting(path):
            await _entered(component, path, longest_start)
        yield
    finally:
        await _leave(component, path, longest)


async def _entered(component: AbstractAsyncContextManager[Any], path: str, longest: float | None) -> None:
    limit = asyncio.timeout(longest)
    try:
        async with limit:
            await component.__aenter__()
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CannotStart(f"{path}: did not start within {longest:g} s") from error


async def _leave(component: AbstractAsyncContextManager[Any], path: str, longest: float) -> None:
    """Leaves the component, which may not be entered. It is then left because its start may have opened something."""
    try:
        async with asyncio.timeout(longest):
            await component.__aexit__(None, None, None)
    except TimeoutError:
        _logger.error("%s did not close within %g s; continuing without it", path, longest)
    except Exception as error:
        _logger.exception("%s failed to close: %s: %s", path, type(error).__name__, error)


class Lifetimes(Generic[Key]):
    """Components that are entered and left one by one. Those that are still entered at its end are left, last first."""

    def __init__(self) -> None:
        self._stacks: dict[Key, AsyncExitStack] = {}

    async def __aenter__(self) -> "Lifetimes[Key]":
        return self

    async def __aexit__(self, *_: object) -> None:
        for key in reversed(list(self._stacks)):
            await self.close(key)

    async def open(
        self, key: Key, component: AbstractAsyncContextManager[Any], path: str, longest_start: float | None = None
    ) -> None:
        """Enters a component. Raises `CannotStart`, with the component left again."""
        stack = AsyncExitStack()
        await stack.enter_async_context(opened(component, path, longest_start=longest_start))
        self._stacks[key] = stack

    async def close(self, key: Key) -> None:
        """Leaves the component with this key. Does nothing if none is entered."""
        if stack := self._stacks.pop(key, None):
            await stack.aclose()


async def cancel_and_wait(tasks: Collection[asyncio.Task[Any]], longest: float = LONGEST_END) -> None:
    """Cancels the tasks and waits for their end, at most `longest` s. Logs their errors, and the tasks that hang.

    While a thread works for one of them, it waits longer: the thread would change data behind the caller's back.
    """
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    done, late = await asyncio.wait(tasks, timeout=longest)
    while late and is_any_ending():
        ended, late = await asyncio.wait(late, timeout=longest)
        done |= ended
    for task in done:
        error = None if task.cancelled() else task.exception()
        if error and not isinstance(error, CannotStart):  # the service reports `CannotStart` itself
            _logger.error("%s failed: %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)
    for name in dict.fromkeys(task.get_name() for task in late):
        _logger.error("%s did not stop within %g s; continuing without it", name, longest)


def was_cancelled(error: BaseException) -> bool:
    """Whether the error is a cancellation of the current task, not of something that it awaited."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
