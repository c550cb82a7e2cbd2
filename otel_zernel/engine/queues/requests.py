"""Requests: what an exporter gets, joined of several entries of a queue, or a piece of one."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from otel_zernel.batch import Batch, Signal, split_batch, split_batch_by_bytes
from otel_zernel.delivery_config import BatchSizer
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


def size_in(sizer: BatchSizer, batch: Batch) -> int:
    """The size of a batch in this unit."""
    return batch.byte_size if sizer == "bytes" else batch.item_count


def grouped(leased: Iterable[Request], max_size: int, sizer: BatchSizer = "items") -> Iterator[list[Request]]:
    """The requests in order, in groups of at most `max_size` (0: one group).

    A larger request is alone, and so are profiles.
    """
    group: list[Request] = []
    total = 0
    for request in leased:
        size = size_in(sizer, request.batch)
        is_full = max_size and total + size > max_size
        if group and (is_full or request.batch.stays_alone or group[-1].batch.stays_alone):
            yield group
            group, total = [], 0
        group.append(request)
        total += size
    if group:
        yield group


def by_signal(leased: Iterable[Request]) -> Iterable[list[Request]]:
    """The requests of each signal, in order."""
    groups: dict[tuple[Signal, ...], list[Request]] = {}
    for request in leased:
        groups.setdefault(tuple(request.batch.signals), []).append(request)
    return groups.values()


async def join_and_split(group: Sequence[Request], max_size: int, sizer: BatchSizer = "items") -> list[Request]:
    """The data of a group as one request, byte to byte, or a too large one in pieces of at most `max_size`.

    Only splitting parses the data: it raises `DecodeError` if they are damaged. Other tasks run meanwhile.
    """
    request = joined(group)
    batches = await _split(request.batch, max_size, sizer) if max_size else [request.batch]
    for lease in request.leases:
        lease.divide(len(batches))
    return [Request(batch, request.leases) for batch in batches]


async def _split(batch: Batch, max_size: int, sizer: BatchSizer) -> list[Batch]:
    if size_in(sizer, batch) <= max_size:
        return [batch]
    split = split_batch_by_bytes if sizer == "bytes" else split_batch
    return await compute(lambda: list(split(batch, max_size))) or [batch]
