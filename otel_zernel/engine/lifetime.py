"""How components and tasks begin and end: what goes wrong becomes a sentence, and what hangs is left behind."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

from otel_zernel.errors import CannotStart

LONGEST_END = 1.0
"""Seconds that a cancelled task may take to end: what `Receiver.run` promises."""
LONGEST_CLOSING = 3.0
"""Seconds that a component may take to close what it has opened."""

_logger = logging.getLogger("otel_zernel.engine.service")


@contextmanager
def starting(path: str) -> Iterator[None]:
    """Raises `CannotStart`, with the component's path, for whatever is raised inside."""
    try:
        yield
    except CannotStart:
        raise
    except Exception as error:
        _logger.debug("A component cannot start", exc_info=True)
        raise CannotStart(f"{path}: cannot start: {type(error).__name__}: {error}") from error


@asynccontextmanager
async def opened(component: AbstractAsyncContextManager[Any], path: str) -> AsyncIterator[None]:
    """The component, entered. Raises `CannotStart` if it cannot be; what goes wrong on leaving is logged."""
    with starting(path):
        await component.__aenter__()
    try:
        yield
    finally:
        try:
            async with asyncio.timeout(LONGEST_CLOSING):
                await component.__aexit__(None, None, None)
        except TimeoutError:
            _logger.error("%s did not close within %g s; going on without it", path, LONGEST_CLOSING)
        except Exception as error:
            _logger.exception("%s failed to close: %s: %s", path, type(error).__name__, error)


async def end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Cancels the tasks and awaits their ends; goes on without those that take too long."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    done, late = await asyncio.wait(tasks, timeout=LONGEST_END)
    for task in done:
        error = None if task.cancelled() else task.exception()
        if error and not isinstance(error, CannotStart):  # which whoever awaited the task has told
            _logger.error("%s failed: %s: %s", task.get_name(), type(error).__name__, error, exc_info=error)
    for name in dict.fromkeys(task.get_name() for task in late):
        _logger.error("%s did not stop within %g s; going on without it", name, LONGEST_END)


def was_cancelled(error: BaseException) -> bool:
    """Whether the error means that this task is to end, not that something inside ended for reasons of its own."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
