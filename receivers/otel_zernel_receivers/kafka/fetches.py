"""Fetched records on their way into the pipelines: parts of partitions, joined to one batch."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from otel_zernel.batch import Batch, Signal

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class UndecodableRecord:
    """A record that is not OTLP."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: Sequence[tuple[str, bytes]]
    reason: str


@dataclass(slots=True, eq=False)
class FetchedPart:
    """The records of one partition in a fetch, in their order. `Fetches` has the lock for its state."""

    place: TopicPartition
    first_offset: int = 0
    next_offset: int = 0
    """The offset after its last record."""
    records: int = 0
    values: list[bytes] = field(default_factory=list)
    items: int = 0
    temporalities: set[int] = field(default_factory=set)
    undecodable: list[UndecodableRecord] = field(default_factory=list)
    is_owned: bool = True
    """Whether its partition still belongs to this member."""
    is_offered: bool = False
    """Whether the pipelines have it now. They may accept it."""


@dataclass(slots=True, eq=False)
class Fetch:
    """Records of one signal that go into the pipelines as one batch."""

    signal: Signal
    parts: dict[TopicPartition, FetchedPart] = field(default_factory=dict)
    size: int = 0
    """Bytes of all values."""
    records: int = 0

    def part(self, place: TopicPartition, offset: int) -> FetchedPart:
        """The part of this partition, whose first record may be the one at `offset`."""
        return self.parts.setdefault(place, FetchedPart(place, offset))


class Fetches:
    """The fetches that the pipelines have not taken yet. The thread of the consumer and the event loop share it."""

    def __init__(self, most: int) -> None:
        """`most` is the number of fetches that wait while the pipelines take one."""
        self._most = most
        self._waiting: list[Fetch] = []
        """Oldest first. The pipelines take the first."""
        self._taken: list[FetchedPart] = []
        self._changed = threading.Condition()

    # In the thread of the consumer.

    def add(self, fetch: Fetch) -> None:
        with self._changed:
            self._waiting.append(fetch)

    def wait_for_room(self, seconds: float) -> bool:
        """Whether another fetch may be added, now or within `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._waiting) <= self._most, seconds)

    def pop_taken(self) -> list[FetchedPart]:
        """The parts that the pipelines have taken since the last call, in order."""
        with self._changed:
            taken, self._taken = self._taken, []
            return taken

    def let_go(self, places: Iterable[TopicPartition], seconds: float) -> None:
        """The partitions leave this member. Waits up to `seconds` for the parts that the pipelines have now."""
        gone = set(places)
        with self._changed:
            for part in self._parts_of(gone):
                part.is_owned = part.is_offered
            self._changed.wait_for(lambda: not any(part.is_offered for part in self._parts_of(gone)), seconds)

    def disown(self, places: Iterable[TopicPartition]) -> None:
        """The partitions are gone. Parts that the pipelines take from now on are read again elsewhere."""
        gone = set(places)
        with self._changed:
            for part in self._parts_of(gone):
                part.is_owned = False

    def wake(self) -> None:
        """Ends all waiting."""
        with self._changed:
            self._most = 1 << 30
            self._changed.notify_all()

    # In the event loop.

    def offer(self, fetch: Fetch) -> list[FetchedPart]:
        """The parts to offer to the pipelines now: those whose partitions still belong to this member."""
        with self._changed:
            parts = [part for part in fetch.parts.values() if part.is_owned]
            for part in parts:
                part.is_offered = True
            return parts

    def refused(self, parts: Iterable[FetchedPart]) -> None:
        """The pipelines refused the parts, so they may leave with their partitions."""
        with self._changed:
            for part in parts:
                part.is_offered = False
            self._changed.notify_all()

    def take(self, fetch: Fetch, parts: Iterable[FetchedPart]) -> list[FetchedPart]:
        """The pipelines have taken these parts. The fetch ends. The result has parts whose partitions are gone."""
        with self._changed:
            repeated: list[FetchedPart] = []
            for part in parts:
                part.is_offered = False
                (self._taken if part.is_owned else repeated).append(part)
            self._waiting.remove(fetch)
            self._changed.notify_all()
            return repeated

    def _parts_of(self, places: set[TopicPartition]) -> list[FetchedPart]:
        return [part for fetch in self._waiting for place, part in fetch.parts.items() if place in places]


def batch_of_parts(signal: Signal, parts: Iterable[FetchedPart]) -> Batch:
    """One batch: the concatenation of encoded messages is the encoding of the joined message."""
    parts = list(parts)
    seen = {temporality for part in parts for temporality in part.temporalities}
    data = b"".join(value for part in parts for value in part.values)
    known = seen if signal == "metrics" else None
    return Batch.encoded(signal, data, sum(part.items for part in parts), known)
