"""A queue leases its entries: each is removed when all requests with its data are settled, or comes back."""

import pytest

from otel_zernel.batch import ItemCount
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.queues import MemoryQueue, join_and_split
from tests.core.engine.wiring import RecordingQueue
from tests.core.parts import batch_of, values_of


def test_a_leased_entry_is_removed_when_it_is_acknowledged() -> None:
    queue = RecordingQueue()
    queue.put_all(batch_of(1.0), batch_of(2.0))
    first, second = queue.lease_all()
    assert (len(queue), queue.size, queue.waiting(), queue.removed) == (0, 0, ItemCount(), [])
    second.acknowledge()
    assert queue.removed == [2.0]
    first.acknowledge()
    assert queue.removed == [2.0, 1.0]


async def test_entries_that_are_given_back_are_leased_again_in_their_order() -> None:
    queue = RecordingQueue()
    queue.put_all(batch_of(1.0), batch_of(2.0))
    [joined] = await join_and_split(queue.lease_all(), 0)
    queue.put(batch_of(3.0))
    joined.give_back()
    assert (queue.size, queue.waiting()) == (3, ItemCount(points=3))
    assert values_of(request.batch for request in queue.lease_all()) == [1.0, 2.0, 3.0]
    assert queue.removed == []


async def test_an_entry_in_several_requests_is_removed_with_the_last() -> None:
    queue = RecordingQueue()
    queue.put_all(batch_of(1.0, 2.0), batch_of(3.0))
    requests = await join_and_split(queue.lease_all(), 1)
    assert [values_of([request.batch]) for request in requests] == [[1.0], [2.0], [3.0]]
    for request in requests[:2]:
        request.acknowledge()
    assert queue.removed == []
    requests[2].acknowledge()
    assert queue.removed == [1.0, 2.0, 3.0]


async def test_an_entry_comes_back_once_and_whole_even_if_a_part_was_delivered() -> None:
    queue = RecordingQueue()
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
    assert not queue.is_full
    queue.put(batch_of(2.0))
    assert queue.is_full


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
