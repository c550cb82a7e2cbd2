"""The store behind the routes: it opens when the database answers, and knows its series."""

import asyncio
from collections.abc import Callable

from otel_zernel.errors import CannotStart, Retryable, ZernelError
from otel_zernel_libraries.store.queries.catalogue import Catalogue
from otel_zernel_libraries.store.reading import NoTables, StoreReader, StoreState


class StoreUnavailable(ZernelError):
    """The database does not answer, or has no tables yet."""


class OpenStore:
    """A reader and its catalogue. A store that cannot be opened yet is tried again at the next request."""

    def __init__(self, reader: StoreReader, most_series: int, monotonic: Callable[[], float]) -> None:
        self.reader = reader
        self.catalogue = Catalogue(reader, most_series)
        self._monotonic = monotonic
        self._is_open = False
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Raises `StoreUnavailable`, or `CannotStart` if a person has to change something."""
        if self._is_open:
            return
        try:
            await self.reader.open()
        except (Retryable, NoTables) as error:
            raise StoreUnavailable(str(error)) from error
        self._is_open = True

    async def state(self) -> StoreState:
        """The state of the store. The catalogue has all its series then.

        Raises `StoreUnavailable` and `TooManySeries`.
        """
        async with self._lock:
            try:
                await self.open()
                state = await self.reader.state()
                await self.catalogue.refresh(state, self._monotonic())
            except (Retryable, CannotStart) as error:
                raise StoreUnavailable(str(error)) from error
            return state
