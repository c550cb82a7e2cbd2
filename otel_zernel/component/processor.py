"""The contract of processors."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import ClassVar, Final

from otel_zernel.batch import Batch, Signal
from otel_zernel.component.component import EnteredComponent

ITEMS_AT_ONCE: Final = 50
"""Items that Python code looks at or changes in about 2 ms."""
BYTES_AT_ONCE: Final = 16 << 10
"""Bytes of such items. A span may have many events, and all of them count."""
LONGEST_PREPARATION: Final = 0.5
"""Seconds that `Processor.prepare` may take. It is then cancelled."""


class Processor(EnteredComponent, ABC):
    """Turns batches into other batches: no I/O, no waiting. Only one call is active at a time.

    A processor that looks something up outside the collector does so in tasks of its own, from `__aenter__` on, and in
    `prepare`. `process` then reads what they have found. It is left after `flush`.
    """

    belongs_first: ClassVar[bool] = False
    """Whether it should be the first processor of its pipeline. Another place is a warning."""
    items_at_once: int | None = None
    """The most items of a batch that it processes in the event loop, mostly `ITEMS_AT_ONCE`. It gets larger batches,
    and those of more than `BYTES_AT_ONCE`, in a thread of its own, where `tick` and `flush` run, too. They must not
    touch what its tasks in the event loop change. None if all of its work is short."""
    interval: float | None = None
    """Seconds between calls of `tick`; None for no calls."""

    @property
    def reads(self) -> Collection[Signal]:
        """The signals whose messages `process` reads. The pipeline parses those that take long in a thread, before."""
        return self.signals

    async def prepare(self, batch: Batch) -> None:
        """Fetches what `process` needs for this batch and does not have yet. Must not change the batch.

        The pipeline waits for it, for at most `LONGEST_PREPARATION` s, and then calls `process` in any case.
        """

    @abstractmethod
    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batches that replace `batch` downstream. The processor owns `batch` and may edit it.

        If it takes more than a few ms, it belongs into a thread: see `items_at_once`.
        """

    def admit(self, batch: Batch) -> None:
        """Raises `Refused` if its pipeline must not accept the batch now. Must not change the batch.

        Called for every processor before the first one gets the batch. The source emits a refused batch again.
        """

    def tick(self, now_ns: int) -> Iterable[Batch]:
        """The batches that are due at wall-clock time `now_ns` (ns since 1970)."""
        return ()

    def flush(self) -> Iterable[Batch]:
        """The batches that the processor still holds when the collector stops. A second call returns nothing."""
        return ()
