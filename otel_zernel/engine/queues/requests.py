"""Requests: what an exporter gets, joined of several entries of a queue, or a piece of one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from otel_zernel.batch import Batch, Signal, split_batch
from otel_zernel.engine.queues.queue import Lease
from otel_zernel.runtime.threads import compute


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A batch as the exporter gets it, with the leases of the entries that its data come from."""

    batch: Batch
    leases: tuple[Lease, ...] = ()

    def acknowledge(self) -> None:
        """The batch is delivered or given up."""
        for lease in self.leases:
            lease.acknowledge()

    def give_back(self) -> int:
        """The batch is not delivered: its entries return to the queue. Returns how many do."""
        return sum(lease.give_back() for lease in reversed(self.leases))

    def parts(self) -> "list[Request]":
        """A request for each entry."""
        return [Request(lease.batch, (lease,)) for lease in self.leases]

    @property
    def is_whole(self) -> bool:
        """Whether it has all items of its entries, and no other request has some of them."""
        return self.batch.item_count == sum(lease.batch.item_count for lease in self.leases)

    @property
    def expires_ns(self) -> float:
        """The wall-clock time in ns at which all of its entries are older than `max_age`."""
        return max((lease.expires_ns for lease in self.leases), default=float("inf"))


def joined(requests: Sequence[Request]) -> Request:
    """One request with the data of all."""
    leases = tuple(lease for request in requests for lease in request.leases)
    return Request(Batch.join([request.batch for request in requests]), leases)


def grouped(leased: Iterable[Request], max_size: int) -> Iterator[list[Request]]:
    """The requests in order, in groups of at most `max_size` items (0: one group).

    A larger request is alone, and so are profiles.
    """
    group: list[Request] = []
    items = 0
    for request in leased:
        count = request.batch.item_count
        is_full = max_size and items + count > max_size
        if group and (is_full or request.batch.stays_alone or group[-1].batch.stays_alone):
            yield group
            group, items = [], 0
        group.append(request)
        items += count
    if group:
        yield group


def by_signal(leased: Iterable[Request]) -> Iterable[list[Request]]:
    """The requests of each signal, in order."""
    groups: dict[tuple[Signal, ...], list[Request]] = {}
    for request in leased:
        groups.setdefault(tuple(request.batch.signals), []).append(request)
    return groups.values()


async def join_and_split(group: Sequence[Request], max_size: int) -> list[Request]:
    """The data of a group as one request, byte to byte, or a too large one in pieces of `max_size` items.

    Only splitting parses the data: it raises `DecodeError` if they are damaged. Other tasks run meanwhile.
    """
    request = joined(group)
    batches = await _split(request.batch, max_size) if max_size else [request.batch]
    for lease in request.leases:
        lease.divide(len(batches))
    return [Request(batch, request.leases) for batch in batches]


async def _split(batch: Batch, max_size: int) -> list[Batch]:
    if batch.item_count <= max_size:
        return [batch]
    return await compute(lambda: list(split_batch(batch, max_size))) or [batch]
