"""The losses of one exporter: counted by reason, and logged at once, then once a minute for each kind."""

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.clock import Clock
from otel_zernel.component import Context
from otel_zernel.telemetry import ExporterMetrics

INTERVAL = 60.0
"""Seconds between two lines about the same kind of loss."""


class RepeatedLoss:
    """Decides when a repeated loss is logged, and how many items the line counts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._unreported = 0
        self._next = float("-inf")

    def add(self, items: int) -> int:
        """The number of items that were lost since the last line; 0 if no line is due."""
        self._unreported += items
        if self._clock.monotonic() < self._next:
            return 0
        due, self._unreported = self._unreported, 0
        self._next = self._clock.monotonic() + INTERVAL
        return due


class Losses:
    """Counts and logs everything that an exporter does not deliver."""

    def __init__(self, context: Context, metrics: ExporterMetrics) -> None:
        self.items = 0
        """All lost items."""
        self._context = context
        self._logger = context.logger
        self._metrics = metrics
        self._overflow, self._expiry = RepeatedLoss(context.clock), RepeatedLoss(context.clock)

    def overflow(self, batch: Batch, *, counted: bool) -> None:
        """A full queue drops the batch. `counted` if it is in `enqueue_failed` already."""
        count = batch.item_count
        self.items += count
        self._context.drop(count, "queue_full")
        if not counted:
            self._metrics.enqueue_failed(batch)
        if due := self._overflow.add(count):
            self._logger.error("The sending queue is full: dropped %d items; other exporters are not affected", due)

    def gave_up(self, batch: Batch, error: Exception, *, rejected: bool) -> None:
        """The exporter rejected the batch, or all attempts within `max_elapsed_time` failed."""
        self._not_sent(batch.counts, "rejected" if rejected else "retries_exhausted")
        self._logger.error("Dropped %s: %s", batch.counts, error)

    def abandoned(self, batch: Batch) -> None:
        """A batch without a queue is being sent, and the collector stops, a reload removes the exporter, or the sender
        gives its request up.
        """
        self._not_sent(batch.counts, "exporter_stopped")
        self._logger.error(
            "Dropped %s: the exporter was stopped, or the sender gave up, before they were delivered", batch.counts
        )

    def expired(self, counts: ItemCount) -> None:
        """A batch became older than `max_age`."""
        self._not_sent(counts, "expired")
        if due := self._expiry.add(counts.total):
            self._logger.error("Dropped %d items that waited longer than max_age", due)

    def removed(self, counts: ItemCount) -> None:
        """A reload removed the exporter before the batches were delivered."""
        if counts.total:
            self._not_sent(counts, "exporter_removed")

    def undecodable(self, counts: ItemCount, error: Exception) -> None:
        """A batch is not valid OTLP."""
        self._not_sent(counts, "undecodable")
        self._logger.error("Dropped %s: the received bytes are not valid OTLP: %s", counts, error)

    def unprepared(self, counts: ItemCount) -> None:
        """The exporter failed on a batch before it was queued."""
        self._not_sent(counts, "exporter_error")

    def unreadable(self, counts: ItemCount, error: Exception) -> None:
        """The disk does not return a batch."""
        self._not_sent(counts, "unreadable")
        self._logger.error("Dropped %s: the queue's storage cannot be read: %s", counts, error)

    def _not_sent(self, counts: ItemCount, reason: str) -> None:
        self.items += counts.total
        self._context.drop(counts.total, reason)
        self._metrics.send_failed.count(counts)
