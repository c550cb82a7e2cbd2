"""The losses of one exporter: counted by reason, and logged at once, then once a minute for each kind."""

from otel_zernel.batch import Batch, ItemCount
from otel_zernel.component import Context
from otel_zernel.errors import Unwanted
from otel_zernel.repeated import RepeatedByKey, more
from otel_zernel.telemetry import ExporterMetrics


class Losses:
    """Counts and logs everything that an exporter does not deliver."""

    def __init__(self, context: Context, metrics: ExporterMetrics, counts: dict[str, ItemCount]) -> None:
        """`counts` has the lost items by reason. They are added to it."""
        self._counts = counts
        self._context = context
        self._logger = context.logger
        self._metrics = metrics
        self._repeated = RepeatedByKey(context.clock.monotonic)

    def overflow(self, batch: Batch, *, counted: bool) -> None:
        """A full queue drops the batch. `counted` if it is in `enqueue_failed` already."""
        self._add(batch.counts, "queue_full")
        if not counted:
            self._metrics.enqueue_failed(batch)
        if due := self._repeated.add("queue_full", batch.item_count):
            self._logger.error("The sending queue is full: dropped %d items; other exporters are not affected", due)

    def gave_up(self, batch: Batch, error: Exception, *, rejected: bool) -> None:
        """The exporter rejected the batch, or all attempts within `max_elapsed_time` failed."""
        if isinstance(error, Unwanted):
            self._not_sent(batch.counts, "unwanted_signal")
            return
        self._not_sent(batch.counts, "rejected" if rejected else "retries_exhausted")
        self._log_once(batch.counts, error, "Dropped %s: %s%s")

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
        if due := self._repeated.add("expired", counts.total):
            self._logger.error("Dropped %d items that waited longer than max_age", due)

    def removed(self, counts: ItemCount) -> None:
        """A reload removed the exporter before the batches were delivered."""
        if counts.total:
            self._not_sent(counts, "exporter_removed")

    def undecodable(self, counts: ItemCount, error: Exception) -> None:
        """A batch is not valid OTLP."""
        self._not_sent(counts, "undecodable")
        self._log_once(counts, error, "Dropped %s: the received bytes are not valid OTLP: %s%s")

    def unprepared(self, counts: ItemCount) -> None:
        """The exporter failed on a batch before it was queued."""
        self._not_sent(counts, "exporter_error")

    def unreadable(self, counts: ItemCount, error: Exception) -> None:
        """The disk does not return a batch."""
        self._not_sent(counts, "unreadable")
        self._log_once(counts, error, "Dropped %s: the queue's storage cannot be read: %s%s")

    def _log_once(self, counts: ItemCount, error: Exception, template: str) -> None:
        """Logs a lost batch. The same template and error are logged again after a minute, with their number."""
        if due := self._repeated.add((template, str(error))):
            self._logger.error(template, counts, error, more(due))

    def _not_sent(self, counts: ItemCount, reason: str) -> None:
        self._add(counts, reason)
        self._metrics.send_failed.count(counts)

    def _add(self, counts: ItemCount, reason: str) -> None:
        self._counts[reason] = self._counts.get(reason, ItemCount()).plus(counts)
        self._context.drop(counts.total, reason)
