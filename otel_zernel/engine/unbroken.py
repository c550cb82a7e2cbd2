"""Work that a cancellation must not leave half done."""

import asyncio
from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_ending: "set[Unbroken]" = set()
"""Those that were cancelled, and are not complete yet."""


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
                _ending.add(self)
        return future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _ending.discard(self)
        if self._cancelled and error is None:
            raise self._cancelled


def is_any_ending() -> bool:
    """Whether cancelled work still has to be completed. Whoever has cancelled it waits for that."""
    return bool(_ending)
