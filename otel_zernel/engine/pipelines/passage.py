"""The passage of one admitted batch: which queues take it, and what its source waits for afterwards."""

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from otel_zernel.batch import Batch, Signal
from otel_zernel.engine.delivery import Delivery
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.errors import Refused

FullQueues = Mapping[Delivery, frozenset[Signal]]
"""The signals for which a queue has no room."""


class Passage:
    """Hands the output of pipelines over to the exporters' queues.

    First `hand_over`, within the context; then, when the pipelines are free for the next batch, `complete`.
    """

    def __init__(self, full: FullQueues | None = None, counted: frozenset[Delivery] = frozenset()) -> None:
        """`full` queues drop these signals. For those in `counted`, the batch is in `enqueue_failed` already."""
        self.unbroken = Unbroken()
        """Awaits the work for the batch."""
        self._full = full or {}
        self._counted = counted
        self._direct: list[tuple[Delivery, Batch]] = []
        """For exporters without a queue."""
        self._safe: list[asyncio.Future[None]] = []
        """Done when the durable queues have made their batches safe."""

    def drops(self, batch: Batch, delivery: Delivery) -> bool:
        """Whether a batch of one signal is dropped for this delivery, because its queue is full."""
        return not self._full.get(delivery, frozenset()).isdisjoint(batch.signals)

    def hand_over(self, batch: Batch, delivery: Delivery) -> None:
        """Queues a batch of one signal, or drops it."""
        if self.drops(batch, delivery):
            delivery.drop(batch, counted=delivery in self._counted)
        elif delivery.direct:
            self._direct.append((delivery, batch))
        elif safe := delivery.queue.put(batch):
            self._safe.append(safe)

    def __enter__(self) -> Self:
        """A cancellation inside is raised at the end. The batches that are not sent then are counted."""
        self.unbroken.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.unbroken.__exit__(kind, error, traceback)
        except asyncio.CancelledError:
            self._abandon()
            raise
        if isinstance(error, asyncio.CancelledError):
            self._abandon()

    def _abandon(self) -> None:
        for delivery, batch in self._direct:
            delivery.abandon(batch)

    async def complete(self) -> bool:
        """Returns when the batch is safe: sent, where there is no queue, and stored, where the queue is durable.

        False if an exporter without a queue gave it up. Raises `Refused` if the collector ends before it is stored.
        """
        delivered = True
        if self._direct:
            delivered = all(await asyncio.gather(*(delivery.send(batch) for delivery, batch in self._direct)))
        if self._safe:
            await asyncio.wait(self._safe)
            if any(safe.cancelled() for safe in self._safe):
                raise Refused("the collector stops, and the batch is not on the disk")
        return delivered
