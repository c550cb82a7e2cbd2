"""The metrics of the consumer. The gauges of a partition end when it leaves the receiver."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from otel_zernel.component import Context
from otel_zernel_receivers.kafka.declared import (
    CURRENT_OFFSET,
    OFFSET_LAG,
    PARTITION_CLOSE,
    PARTITION_START,
    RECORDS,
    REPEATED_RECORDS,
    UNDECODABLE_RECORDS,
)
from otel_zernel_receivers.kafka.fetches import Fetch, FetchedPart, TopicPartition

if TYPE_CHECKING:  # an optional package
    from confluent_kafka import Consumer

_KEPT: Final = "gauges"


class PartitionGauges:
    """The offsets and lags that the SDK observes. An instance outlives reloads, and reports only what is assigned."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.lags: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        meter.create_observable_gauge(
            OFFSET_LAG.name, [lambda _: _observed(self.lags, _)], OFFSET_LAG.unit, OFFSET_LAG.description
        )
        meter.create_observable_gauge(
            CURRENT_OFFSET.name, [lambda _: _observed(self.offsets, _)], CURRENT_OFFSET.unit, CURRENT_OFFSET.description
        )

    def forget(self, places: Iterable[TopicPartition]) -> None:
        for place in list(places):
            self.lags.pop(place, None)
            self.offsets.pop(place, None)


def _observed(values: dict[TopicPartition, int], _: CallbackOptions) -> list[Observation]:
    return [Observation(value, _labels(place)) for place, value in list(values.items())]


def _labels(place: TopicPartition) -> dict[str, str]:
    return {"topic": place[0], "partition": str(place[1])}


class ConsumerMetrics:
    """Counts records and partitions, and measures lags."""

    def __init__(self, context: Context) -> None:
        meter = context.meter
        kept = context.kept.get(_KEPT)
        self._gauges: PartitionGauges = (
            kept if isinstance(kept, PartitionGauges) and kept.meter is meter else PartitionGauges(meter)
        )
        context.kept[_KEPT] = self._gauges
        self._records = meter.create_counter(*RECORDS.counter)
        self._starts = meter.create_counter(*PARTITION_START.counter)
        self._closes = meter.create_counter(*PARTITION_CLOSE.counter)
        self._undecodable = meter.create_counter(*UNDECODABLE_RECORDS.counter)
        self._repeated = meter.create_counter(*REPEATED_RECORDS.counter)
        self._assigned: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}
        """The offset after the last record that the pipelines took; that of the first fetched one before."""

    def assigned(self, places: set[TopicPartition]) -> None:
        self._assigned |= places
        if places:
            self._starts.add(len(places))

    def left(self, places: set[TopicPartition]) -> None:
        gone = self._assigned & places
        self._assigned -= gone
        self._gauges.forget(gone)
        for place in gone:
            self._ends.pop(place, None)
        if gone:
            self._closes.add(len(gone))

    def clear(self) -> None:
        """The receiver ends."""
        self.left(set(self._assigned))

    def fetched(self, fetch: Fetch) -> None:
        for place, part in fetch.parts.items():
            self._records.add(part.records, _labels(place))
            self._ends.setdefault(place, part.first_offset)

    def took(self, parts: Iterable[FetchedPart]) -> None:
        for part in parts:
            if part.place in self._assigned:
                self._gauges.offsets[part.place] = part.next_offset - 1
                self._ends[part.place] = part.next_offset

    def undecodable(self, topic: str, outcome: str, count: int) -> None:
        self._undecodable.add(count, {"topic": topic, "outcome": outcome})

    def repeated(self, parts: Iterable[FetchedPart]) -> None:
        for part in parts:
            self._repeated.add(part.records, {"topic": part.place[0]})

    def watch(self, consumer: "Consumer") -> None:
        """Reads the ends of the partitions that the client knows from its last fetch: no request."""
        for offset in consumer.position(consumer.assignment()):
            place = offset.topic, offset.partition
            watermark_offsets: Any = consumer.get_watermark_offsets(offset, cached=True)
            if place not in self._assigned or not watermark_offsets or watermark_offsets[1] < 0:
                continue
            end = self._ends.get(place, offset.offset)
            if end >= 0:
                self._gauges.lags[place] = max(0, watermark_offsets[1] - end)
