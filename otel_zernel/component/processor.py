"""The contract of processors."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final, NoReturn

from otel_zernel.batch import Batch, Signal
from otel_zernel.component.component import Component


class _Pause(Batch):
    """An empty batch that cannot be edited, because all processors share it."""

    __slots__ = ()

    def edit_metrics(self) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")

    def edit_spans(self) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")

    def edit_logs(self) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")

    def edit(self, signal: Signal) -> NoReturn:
        raise TypeError("PAUSE carries no data and must not be edited")


PAUSE: Final[Batch] = _Pause()
"""A processor yields this between two pieces of work. The pipeline then lets other tasks run, and forwards nothing."""


class Processor(Component, ABC):
    """Turns batches into other batches: no I/O, no waiting. Only one call is active at a time."""

    belongs_first: ClassVar[bool] = False
    """Whether it should be the first processor of its pipeline. Another place is a warning."""
    heavy_modules: ClassVar[tuple[str, ...]] = ()
    """Names of modules that `process` imports. The pipeline imports them in a thread before the first batch, so that
    the collector starts quickly and the import does not block the event loop."""
    interval: float | None = None
    """Seconds between calls of `tick`; None for no calls."""

    @abstractmethod
    def process(self, batch: Batch) -> Iterable[Batch]:
        """The batches that replace `batch` downstream. The processor owns `batch` and may edit it.

        Work of more than 10 ms is split: a generator yields a finished batch or `PAUSE` between two pieces.
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
