"""The contract of stores that are written."""

from abc import ABC, abstractmethod
from typing import ClassVar

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.written import Written


class StoreWriter(ABC):
    """Writes batches of metrics and spans. Several writers may use one store, in one process or in several.

    A point is identified by its series and time, a span by its ids and start. The same batch twice is stored once.
    """

    pieces: ClassVar[str]
    """The word for the pieces that `maintain` removes."""

    @abstractmethod
    async def open(self) -> None:
        """Opens the store and creates or migrates its tables. Safe to call twice.

        Raises `CannotStart` if a person has to change something, and `Retryable` if the database does not answer.
        """

    @abstractmethod
    async def write(self, batch: Batch, now_ns: int) -> Written:
        """Stores the metrics and spans of a batch in one transaction. What has returned is stored.

        `now_ns` is the wall clock: points before the retention or too far ahead are left out and counted.

        Opens the store if it is not open. Raises `Retryable` or `Permanent`; after an error of the connection the
        batch may be stored, and writing it again stores it once. Raises `DecodeError` for metrics that are not valid.
        """

    @abstractmethod
    async def maintain(self, now_ns: int) -> int:
        """Removes points before the retention, and prepares the tables of the next periods. Readers and writers go on.

        Returns the number of removed partitions in PostgreSQL, and of points in SQLite. Raises `Retryable`.
        """

    @abstractmethod
    async def close(self) -> None:
        """Closes the store. Safe to call twice, and without `open`."""
