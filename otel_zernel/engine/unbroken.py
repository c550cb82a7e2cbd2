"""Work that a cancellation must not leave half done."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class Unbroken:
    """A context whose cancellation is raised at its end. Whatever it awaits must pass through `wait`."""

    def __init__(self) -> None:
        self._cancelled: asyncio.CancelledError | None = None

    async def wait(self, work: Awaitable[T]) -> T:
        """The result of the work, which must end soon. Other tasks run meanwhile."""
        future = asyncio.ensure_future(work)
        while not future.done():
            try:
                await asyncio.wait({future})
            except asyncio.CancelledError as cancelled:
                self._cancelled = cancelled
        return future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._cancelled and error is None:
            raise self._cancelled
