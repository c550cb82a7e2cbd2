"""A queue leases its entries: each is removed when all requests with its data are settled, or comes back."""

import asyncio

import pytest

from otel_zernel.batch import SIGNALS, ItemCount
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues import MemoryQueue, grouped, join_and_split
from otel_zernel.engine.queues.queue import _MOST_EXPIRED
from otel_zernel.testing import FakeClock
from tests.core.engine.wiring import RecordingQueue
from tests.core.parts import batch_of, every_signal, values_of


def test_a_leased_entry_is_removed_when_it_is_acknowledged(queue: RecordingQueue) -> None:
    queue.put_all(batch_of(1.0), batch_of(2.0))
    first, second = queue.lease_all()
    assert (len(queue), queue.size, queue.waiting(), queue.removed) == (0, 0, ItemCount(), [])
    second.acknowledge()
    assert queue.removed == [2.0]
    first.acknowledge()
    assert queue.removed == [2.0, 1.0]


def test_the_oldest_entry_of_other_signals_is_leased_before_those_of_a_signal_that_waits(queue: RecordingQueue) -> None:
    spans = every_signal().only({"traces"})
    queue.put_all(batch_of(1.0), batch_of(2.0), spans, batch_of(3.0))
    lease = queue.lease({"metrics"})
    assert lease
    assert lease.batch.count_of("traces") == spans.count_of("traces")
    assert queue.lease({"metrics"}) is None
    assert values_of(request.batch for request in queue.lease_all()) == [1.0, 2.0, 3.0]


async def test_entries_that_are_given_back_are_leased_again_in_their_order(queue: RecordingQueue) -> None:
    queue.put_all(batch_of(1.0), batch_of(2.0))
    [joined] = await join_and_split(queue.lease_all(), 0)
    queue.put(batch_of(3.0))
    joined.give_back()
    assert (queue.size, queue.waiting()) == (3, ItemCount(points=3))
    assert values_of(request.batch for request in queue.lease_all()) == [1.0, 2.0, 3.0]
    assert queue.removed == []


async def test_an_entry_in_several_requests_is_removed_with_the_last(queue: RecordingQueue) -> None:
    queue.put_all(batch_of(1.0, 2.0), batch_of(3.0))
    requests = await join_and_split(queue.lease_all(), 1)
    assert [values_of([request.batch]) for request in requests] == [[1.0], [2.0], [3.0]]
    for request in requests[:2]:
        request.acknowledge()
    assert queue.removed == []
    requests[2].acknowledge()
    assert queue.removed == [1.0, 2.0, 3.0]


async def test_requests_may_be_measured_in_bytes(queue: RecordingQueue) -> None:
    queue.put_all(*(batch_of(*map(float, range(number))) for number in (1, 2, 3, 20)))
    leased = list(queue.lease_all())
    limit = leased[1].batch.byte_size + leased[0].batch.byte_size
    groups = list(grouped(leased, limit, "bytes"))
    assert [len(group) for group in groups] == [2, 1, 1]
    pieces = await join_and_split(groups[2], limit, "bytes")
    assert max(piece.batch.byte_size for piece in pieces) <= limit
    assert values_of(piece.batch for piece in pieces) == [float(value) for value in range(20)]
    assert len(await join_and_split(groups[0], 1, "bytes")) == 3


async def test_an_entry_comes_back_once_and_whole_even_if_a_part_was_delivered(queue: RecordingQueue) -> None:
    queue.put(batch_of(1.0, 2.0, 3.0))
    first, second, third = await join_and_split(queue.lease_all(), 1)
    first.acknowledge()
    second.give_back()
    third.give_back()
    assert values_of(request.batch for request in queue.lease_all()) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("sizer", ["requests", "items"])
def test_a_queue_is_full_when_its_size_is_its_capacity(sizer: str) -> None:
    queue = RecordingQueue(sizer, 2)
    queue.put(batch_of(1.0))
    assert not queue.full_signals()
    queue.put(batch_of(2.0))
    assert queue.full_signals() == set(SIGNALS)


@pytest.mark.parametrize(("sizer", "size"), [("requests", 1), ("items", 3), ("bytes", batch_of(1, 2, 3).byte_size)])
def test_a_queue_is_measured_by_its_sizer(sizer: str, size: int) -> None:
    queue = MemoryQueue(SendingQueueConfig.model_validate({"sizer": sizer}))
    queue.put(batch_of(1, 2, 3))
    assert queue.size == size
    queue.lease()
    assert queue.size == 0


def test_an_empty_queue_accepts_even_a_batch_larger_than_itself() -> None:
    queue = MemoryQueue(SendingQueueConfig.model_validate({"sizer": "items", "queue_size": 2}))
    large = batch_of(1, 2, 3)
    assert queue.has_room(large)
    queue.put(large)
    assert not queue.has_room(batch_of(1))


async def test_many_expired_entries_leave_in_pieces_so_that_other_tasks_run_and_they_take_no_room() -> None:
    clock = FakeClock()
    queue = MemoryQueue(SendingQueueConfig.model_validate({"queue_size": 5000, "max_age": "10s"}), clock)
    owner = Counting()
    queue.attach(owner)
    for _ in range(5000):
        queue.put(batch_of(1.0))
    assert queue.full_signals() == set(SIGNALS)
    clock.advance(11)
    assert not queue.full_signals()
    assert queue.has_room(batch_of(2.0))
    assert (queue.lease(), owner.expired_points) == (None, _MOST_EXPIRED)
    queue.put(batch_of(2.0))
    turns = 0
    while len(queue) > 1:
        before = owner.expired_points
        await asyncio.sleep(0)
        assert owner.expired_points - before <= _MOST_EXPIRED
        turns += 1
    assert (turns, owner.expired_points, owner.changes) == (49, 5000, turns + 5001)
    lease = queue.lease()
    assert lease
    assert values_of([lease.batch]) == [2.0]


async def test_entries_behind_expired_ones_are_taken_over() -> None:
    clock = FakeClock()
    config = SendingQueueConfig.model_validate({"queue_size": 5000, "max_age": "10s"})
    former, queue = MemoryQueue(config, clock), MemoryQueue(config, clock)
    for _ in range(3 * _MOST_EXPIRED):
        former.put(batch_of(1.0))
    clock.advance(11)
    former.put(batch_of(2.0))
    queue.take_over(former)
    assert queue.waiting().points == 1


class Counting:
    """The owner of a queue."""

    def __init__(self) -> None:
        self.expired_points = self.changes = 0

    def queue_changed(self) -> None:
        self.changes += 1

    def expired(self, counts: ItemCount) -> None:
        self.expired_points += counts.points

    def unreadable(self, counts: ItemCount, error: Exception) -> None:
        raise AssertionError(error)
