"""The contract of stores that are written, the options of a writer, and the result of a write."""

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from typing import ClassVar, Final

from otel_zernel.batch import Batch
from otel_zernel_libraries.store.rows.points import LATEST_TIME


@dataclass(slots=True)
class Written:
    """The points and spans of one batch, by their fate."""

    stored: int = 0
    repeated: int = 0
    """The store had the same point already, with the same value."""
    conflicting: int = 0
    """The store had a point of the same series and time with another value, which stays."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Points that the store does not take, by the reason: `too_old`, `too_far_ahead`, `time_out_of_range` or
    `too_many_partitions`."""

    def add(self, given: int, stored: int, conflicting: int) -> None:
        """Counts the rows of one table."""
        self.stored += stored
        self.conflicting += conflicting
        self.repeated += given - stored - conflicting


_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The options of a writer besides the way to its database. Durations are in ns."""

    setting: str
    """The path of the component in the configuration."""
    series: int
    """Series in memory at most."""
    partition_ns: int = 86_400 * _NS
    retention_ns: int = 0
    """0 for ever."""
    max_future_ns: int = 0
    """How far times may be ahead of the clock; 0 for any."""
    most_partitions: int = 2000
    """Partitions of a table. More would slow every query, and times that are wrong could ask for any number."""

    @property
    def url_setting(self) -> str:
        return f"{self.setting}::url"

    def earliest(self, now_ns: int) -> int:
        """The first time that is kept."""
        return max(0, now_ns - self.retention_ns) if self.retention_ns else 0

    def latest(self, now_ns: int) -> int:
        """The last time that is accepted."""
        return min(LATEST_TIME, now_ns + self.max_future_ns) if self.max_future_ns else LATEST_TIME


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
