"""The batch processor."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from opentelemetry.metrics import Counter

from otel_zernel.batch import ALL_SIGNALS, SIGNALS, STABLE_SIGNALS, Batch, Signal, split_batch
from otel_zernel.component import Context, Processor
from otel_zernel.errors import DecodeError
from otel_zernel_processors.batch.config import BatchConfig
from otel_zernel_processors.batch.declared import SEND_SIZE, SIZE_TRIGGER, TIMEOUT_TRIGGER

_SIZES: Final = [10, 25, 50, 75, 100, 250, 500, 750, *range(1000, 10_001, 1000), 20_000, 30_000, 50_000, 100_000]
"""The bounds of the OpenTelemetry Collector's histogram of sizes."""
_TICKS = 4  # looks within a timeout, so that a batch waits at most a quarter longer
_SHORTEST_TICK = 0.01


class PendingBatches:
    """Batches of one signal that wait to be joined."""

    def __init__(self) -> None:
        self._batches: list[Batch] = []
        self.items = 0
        self.since = 0.0
        """When the first of them came: seconds of the monotonic clock."""

    def add(self, batch: Batch, now: float) -> None:
        if not self._batches:
            self.since = now
        self._batches.append(batch)
        self.items += batch.item_count

    def take(self) -> list[Batch]:
        """All of them. Nothing waits any more."""
        taken, self._batches, self.items = self._batches, [], 0
        return taken


class BatchProcessor(Processor):
    """Joins small batches of one signal into larger ones, and splits those that are too large. Profiles pass."""

    Config = BatchConfig
    stability = "beta"
    signals = ALL_SIGNALS

    def __init__(self, config: BatchConfig, context: Context) -> None:
        super().__init__(config, context)
        self._pending: dict[Signal, PendingBatches] = {signal: PendingBatches() for signal in SIGNALS}
        self._at_once = not config.timeout or not config.send_batch_size
        self.items_at_once = 0 if config.send_batch_max_size else None
        """To join is fast; to split, it parses."""
        self.interval = None if self._at_once else max(config.timeout / _TICKS, _SHORTEST_TICK)
        meter, self._attributes = context.meter, {"processor": context.id}
        self._sizes = meter.create_histogram(
            SEND_SIZE.name, SEND_SIZE.unit, SEND_SIZE.description, explicit_bucket_boundaries_advisory=_SIZES
        )
        self._by_size = meter.create_counter(*SIZE_TRIGGER.counter)
        self._by_timeout = meter.create_counter(*TIMEOUT_TRIGGER.counter)

    @property
    def reads(self) -> Collection[Signal]:
        """Joining reads no message; splitting does."""
        return STABLE_SIGNALS if self.config.send_batch_max_size else ()

    def process(self, batch: Batch) -> Iterator[Batch]:
        """The joined batches that are complete."""
        for signal in filter(batch.count_of, batch.signals):
            part = batch if len(batch.signals) == 1 else batch.only({signal})
            if part.stays_alone:
                yield part
                continue
            pending = self._pending[signal]
            pending.add(part, self.context.clock.monotonic())
            if self._at_once or pending.items >= self.config.send_batch_size:
                yield from self._send(signal, self._by_size, complete_only=not self._at_once)

    def tick(self, now_ns: int) -> Iterator[Batch]:
        """The batches that have waited for the timeout."""
        now = self.context.clock.monotonic()
        for signal, pending in self._pending.items():
            if pending.items and now - pending.since >= self.config.timeout:
                yield from self._send(signal, self._by_timeout)

    def flush(self) -> Iterable[Batch]:
        """Everything that still waits."""
        for signal, pending in self._pending.items():
            if pending.items:
                yield from self._send(signal)

    def _send(self, signal: Signal, trigger: Counter | None = None, complete_only: bool = False) -> Iterator[Batch]:
        """Sends what waits, and counts the `trigger`.

        With `complete_only`, a rest that is smaller than `send_batch_size` goes on waiting.
        """
        if trigger:
            trigger.add(1, self._attributes)
        for batch in self._taken(signal, complete_only):
            self._sizes.record(batch.item_count, self._attributes)
            yield batch

    def _taken(self, signal: Signal, complete_only: bool) -> Iterator[Batch]:
        pending, now = self._pending[signal], self.context.clock.monotonic()
        joined = self._joined(signal, pending.take())
        if not self.config.send_batch_max_size:
            yield joined
            return
        for piece in split_batch(joined, self.config.send_batch_max_size):
            if complete_only and piece.item_count < self.config.send_batch_size:
                pending.add(piece, now)
            else:
                yield piece

    def _joined(self, signal: Signal, batches: Sequence[Batch]) -> Batch:
        """One batch, joined byte to byte. Only if it must be split it is parsed: batches that are not OTLP are lost."""
        joined = Batch.join(batches)
        if not 0 < self.config.send_batch_max_size < joined.item_count:
            return joined
        try:
            joined.message(signal)
        except DecodeError:
            return Batch.join(batch for batch in batches if self._is_sound(signal, batch))
        return joined

    def _is_sound(self, signal: Signal, batch: Batch) -> bool:
        """Whether the batch can be parsed. If not, it is counted and logged."""
        try:
            batch.message(signal)
        except DecodeError as error:
            count = batch.item_count
            self.context.drop(count, "undecodable")
            self.context.logger.error("Dropped %d items: the received bytes are not valid OTLP: %s", count, error)
            return False
        return True
