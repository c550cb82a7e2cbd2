"""The contract of exporters."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Literal

from otel_zernel.batch import Batch
from otel_zernel.component.component import EnteredComponent


class Exporter(EnteredComponent, ABC):
    """Sends batches out of the collector. Entered before its first batch and left after its last one."""

    delivery: ClassVar[Literal["local", "remote"]] = "local"
    """How batches reach it. `local`: in order, by one consumer, with endless retries. `remote`: as the user configures
    it; `Config` must then derive from `RemoteExporterConfig`."""
    in_order: ClassVar[bool] = False
    """Whether the metrics of a target (its job and instance) are delivered in the order in which they were queued, over
    retries, too. Several consumers then send the metrics of different targets at the same time."""

    def prepares(self, batch: Batch) -> bool:
        """Whether `prepare` has to see the batch before it is queued. It is called for every batch: it must be fast."""
        return False

    def prepare(self, batch: Batch, *, dropped: bool) -> Iterable[Batch]:
        """The batches to queue in place of this one. The exporter owns `batch`, which has one signal, and may edit it.

        Called once for each batch, before the queue, and never for a retry. If `dropped`, the queue is full: the result
        is counted as lost. Batches of more than `ITEMS_AT_ONCE` items, or `BYTES_AT_ONCE`, are prepared
        in a thread.
        """
        return (batch,)

    @abstractmethod
    async def export(self, batch: Batch) -> None:
        """Delivers one batch and leaves it unchanged. Raises `Retryable` or `Permanent` on failure.

        Called by `num_consumers` consumers at the same time, and cancelled after the configured `timeout`.
        """
