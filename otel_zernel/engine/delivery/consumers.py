"""The consumers of a queue: they lease entries, join and split them into requests, and send these to the exporter.

Each request is sent until it is delivered or given up, and counted then.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from otel_zernel.batch import ItemCount, Signal
from otel_zernel.component import Context
from otel_zernel.delivery_config import BatchSizer, SendingQueueConfig
from otel_zernel.engine.delivery.losses import Losses
from otel_zernel.engine.delivery.sending import Divided, Failure, Interrupted, OnFailure, Sender, wait_on
from otel_zernel.engine.delivery.turns import MOST_ITEMS, TargetTurns, Turn
from otel_zernel.engine.lifetime import cancel_and_wait
from otel_zernel.engine.queues import Lease, Queue, Request, by_signal, grouped, join_and_split, joined, size_in
from otel_zernel.errors import Correctable, DecodeError, Permanent, Retryable
from otel_zernel.telemetry import ExporterMetrics

MOST_REJECTIONS = 64
"""Rejected requests after which the rest is given up. It bounds the extra work for the server."""
HOPELESS = 16
"""Rejections without one success after which the rest is given up: the server rejects everything. One bad batch among
2^15 causes no more, because each rejection halves a request."""


class Dissection:
    """Which parts of a rejected request to send together next: halves, then quarters, down to single parts."""

    def __init__(self, parts: Sequence[Request]) -> None:
        self._groups: deque[Sequence[Request]] = deque()
        self._rejections = 0
        self._accepted = False
        self._divide(parts)

    def next_group(self) -> Sequence[Request]:
        """The parts to send next, in one request. Empty if none are left, or if it is hopeless."""
        while self._groups:
            if self._rejections >= MOST_REJECTIONS or (self._rejections >= HOPELESS and not self._accepted):
                return ()
            if group := self._groups.popleft():
                return group
        return ()

    def divides(self, group: Sequence[Request], outcome: Failure | None) -> bool:
        """Takes the outcome of a group. Returns whether its parts are sent again; if not, they are settled."""
        if outcome is None:
            self._accepted = True
        if outcome is None or not outcome.rejected:
            return False
        self._rejections += 1
        if len(group) > 1:
            self._divide(group)
        return len(group) > 1

    def rest(self) -> list[Request]:
        """The parts that are given up without another attempt."""
        return [part for group in self._groups for part in group]

    def _divide(self, group: Sequence[Request]) -> None:
        middle = len(group) // 2
        self._groups.extendleft((group[middle:], group[:middle]))


class Dispatch:
    """Sends requests and settles them."""

    def __init__(
        self, sender: Sender, losses: Losses, metrics: ExporterMetrics, *, expires: bool, moved: Callable[[], None]
    ) -> None:
        """`expires`: whether entries have a `max_age`. `moved` is called when a request is settled."""
        self.in_flight: set[Request] = set()
        """Requests that are leased and not settled."""
        self._sender = sender
        self._losses = losses
        self._metrics = metrics
        self._expires = expires
        self._moved = moved

    async def deliver(self, request: Request, on_failure: OnFailure = wait_on) -> bool:
        """Sends a request until it is settled. The result is False if any part of it was given up.

        Raises `Divided` if it has several entries, and the server refuses it for a reason that may be one of them.
        """
        self.in_flight.add(request)
        try:
            divisible = len(request.leases) > 1 and request.is_whole
            failure = await self._send(request, divisible=divisible, on_failure=on_failure)
            if failure and failure.may_be_in_part and len(request.leases) > 1:
                await self._take_apart(request, failure)
            else:
                self.settle(request, failure)
            return failure is None
        finally:
            self.in_flight.discard(request)
            self._moved()

    async def _send(
        self, request: Request, *, divisible: bool = False, on_failure: OnFailure = wait_on
    ) -> Failure | None:
        expires_ns = request.expires_ns if self._expires else float("inf")
        return await self._sender.send(request.batch, expires_ns, divisible=divisible, on_failure=on_failure)

    def settle(self, request: Request, failure: Failure | None) -> None:
        """The request is delivered or given up."""
        if failure is None:
            self._metrics.sent(request.batch)
        elif failure.expired:
            self._losses.expired(request.batch.counts)
        else:
            self._losses.gave_up(request.batch, failure.error, rejected=failure.rejected)
        request.acknowledge()

    def lose_damaged(self, request: Request, error: DecodeError) -> None:
        self._losses.undecodable(request.batch.counts, error)
        request.acknowledge()

    async def _take_apart(self, request: Request, failure: Failure) -> None:
        """Sends the entries of a rejected request again, in smaller and smaller requests."""
        parts = request.parts()
        self.in_flight.discard(request)
        self.in_flight.update(parts)
        try:
            dissection = Dissection(parts)
            while group := dissection.next_group():
                smaller = joined(group)
                outcome = await self._send(smaller)
                if dissection.divides(group, outcome):
                    continue
                self.settle(smaller, outcome)
                self.in_flight.difference_update(group)
            if rest := dissection.rest():
                self.settle(joined(rest), failure)
        finally:
            self.in_flight.difference_update(parts)


PATIENCE: Final = 120.0
"""Seconds of failed attempts after which a batch may be at fault. A refused batch may be at once."""


class Consumers:
    """The tasks between a queue and its exporter. They own the queue: it reports to them."""

    def __init__(
        self,
        config: SendingQueueConfig,
        context: Context,
        sender: Sender,
        losses: Losses,
        metrics: ExporterMetrics,
        *,
        in_order: bool,
    ) -> None:
        """`in_order`: whether the metrics of a target are sent in the order of the queue."""
        self._batching = config.batch
        self._context = context
        self._sender = sender
        self._losses = losses
        self._consumers = config.num_consumers
        self._turns = TargetTurns(
            needed=in_order and config.num_consumers > 1,
            most_items=config.batch.min_size if config.batch and config.batch.sizer == "items" else MOST_ITEMS,
        )
        self._arrived = asyncio.Event()
        """Set when the queue may have an entry."""
        self._moved = asyncio.Event()
        """Set when an entry leaves the queue, a request is settled, or an attempt fails."""
        sender.progress.on_failure = self._moved.set
        self._dispatch = Dispatch(sender, losses, metrics, expires=config.max_age > 0, moved=self._moved.set)
        self.in_flight = self._dispatch.in_flight
        """Requests that are leased and not settled."""
        self._gathering = asyncio.Lock()
        self._flush: asyncio.Timeout | None = None
        self._draining = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending: dict[asyncio.Task[None] | None, Collection[Signal]] = {}
        """The consumers that have a request, and its signals."""
        self._aside: set[asyncio.Task[None] | None] = set()
        """The consumers whose request fails, and which others have replaced. They end with it."""
        self._delivered_before: dict[Request, int] = {}
        """The batches that the server had taken when an attempt of a request failed without an answer."""
        self._suspects: set[Request] = set()
        """Requests that failed although the server has taken others since the attempt before."""
        self._settling = False

    def start(self, queue: Queue, count: int) -> None:
        """Starts so many consumers of the queue."""
        queue.attach(self)
        for _ in range(count):
            self._start_consumer(queue)

    def _start_consumer(self, queue: Queue) -> None:
        task = asyncio.create_task(self._consume(queue), name=self._context.path)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._aside.discard(task)

    async def settle(self) -> None:
        """Returns when the consumers have ended, each after its requests or their first failure."""
        self._settling = True
        for task in self._tasks - self._sending.keys():
            task.cancel()
        await self._sender.settle()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._give_back(self._turns.take_all())

    def wake(self) -> None:
        """Ends every `wait_for_move`."""
        self._moved.set()

    async def stop(self) -> None:
        """Ends the consumers. Requests in flight return to the queue."""
        self._sender.cut()
        await cancel_and_wait(list(self._tasks))
        self._give_back(self._turns.take_all())

    async def drain(self, queue: Queue, may_stop: Callable[[], bool]) -> None:
        """Returns when every queued batch is delivered or given up, or when `may_stop` is true.

        Requests no longer wait for `min_size`. After `hurry`, also returns when no time is left for another attempt.
        """
        self._draining = True
        self._sender.drain()
        if self._flush and not self._flush.expired():
            self._flush.reschedule(0)
        while (self.in_flight or (queue.size and not self._sender.is_out_of_time)) and not may_stop():
            await self.wait_for_move()

    def hurry(self, deadline: float) -> None:
        """Plans no attempt after the monotonic time `deadline`. What is not delivered by then stays in the queue."""
        self._sender.hurry(deadline)

    async def wait_for_move(self) -> None:
        """Returns when an entry has left the queue or a request was settled since the call."""
        self._moved.clear()
        await self._moved.wait()

    def queue_changed(self) -> None:
        """The queue has a new entry, or more room."""
        self._arrived.set()
        self._moved.set()

    def expired(self, counts: ItemCount) -> None:
        """The queue removed an entry that is older than `max_age`."""
        self._losses.expired(counts)
        self._moved.set()

    def unreadable(self, counts: ItemCount, error: Exception) -> None:
        """The queue removed an entry that the disk does not return."""
        self._losses.unreadable(counts, error)
        self._moved.set()

    async def deliver(self, request: Request) -> bool:
        """Sends a request until it is settled. The result is False if any part of it was given up."""
        return await self._dispatch.deliver(request)

    async def _consume(self, queue: Queue) -> None:
        task = asyncio.current_task()
        while not self._settling and task not in self._aside:
            async with self._gathering:
                request = await self._next(queue)
            self._sending[task] = request.batch.signals
            try:
                await self._dispatch.deliver(
                    request, partial(self._go_on_without, queue, request, self._context.clock.monotonic())
                )
            except Divided:
                await self._divide(request)
            except BaseException as error:
                self._give_back([request])
                if not isinstance(error, Interrupted):
                    raise
                if self._sender.is_out_of_time:
                    self._give_back(self._turns.take_all())
                return
            finally:
                del self._sending[task]
                self._suspects.discard(request)
                self._delivered_before.pop(request, None)
                self._turns.end(request)
                self._arrived.set()

    async def _next(self, queue: Queue) -> Request:
        """The next request whose turn it is. Entries that wait for theirs do not hold up others.

        Requests that waited are joined, so that slow answers cost no throughput. In an outage they are not: the request
        may be given up.
        """
        while True:
            paused = self._paused()
            if self._sender.is_out_of_time:
                self._give_back(self._turns.take_all())
            else:
                if turn := self._turns.next(paused, join=not self._sender.outages.outage):
                    return self._begin(turn)
                if lease := queue.lease({*paused, *self._turns.crowded}):
                    await self._add(queue, lease)
                    continue
            self._arrived.clear()
            await self._arrived.wait()

    def _begin(self, turn: Turn) -> Request:
        request = joined(turn.requests) if len(turn.requests) > 1 else turn.requests[0]
        self._turns.begin(request, turn.targets)
        self.in_flight.difference_update(turn.requests)
        self.in_flight.add(request)
        self._moved.set()
        return request

    def _paused(self) -> set[Signal]:
        """The signals with as many requests as there are consumers. Failed ones count, although they occupy none."""
        counts = Counter(signal for signals in self._sending.values() for signal in signals)
        return {signal for signal, count in counts.items() if count >= self._consumers}

    async def _add(self, queue: Queue, lease: Lease) -> None:
        """Lets the entry wait for its turn, with others that are joined with it or split as configured."""
        leased = [self._request(lease)]
        try:
            await self._gather(queue, leased)
            requests = await self._requests(leased)
        except asyncio.CancelledError:
            self._give_back(leased)
            raise
        self.in_flight.difference_update(leased)
        self.in_flight.update(requests)
        await self._turns.add(requests)

    async def _gather(self, queue: Queue, leased: list[Request]) -> None:
        """Adds leased entries until they are large enough for one request, or `flush_timeout` has passed."""
        batching = self._batching
        if batching is None:
            return
        size = size_in(batching.sizer, leased[0].batch)
        try:
            async with asyncio.timeout(0 if self._draining else batching.flush_timeout) as self._flush:
                while size < batching.min_size:
                    leased.append(await self._lease(queue))
                    size += size_in(batching.sizer, leased[-1].batch)
        except TimeoutError:
            pass
        finally:
            self._flush = None

    async def _lease(self, queue: Queue) -> Request:
        without = {*self._paused(), *self._turns.crowded}
        while self._sender.is_out_of_time or (lease := queue.lease(without)) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return self._request(lease)

    def _request(self, lease: Lease) -> Request:
        request = Request(lease.batch, (lease,))
        self.in_flight.add(request)
        self._moved.set()
        return request

    async def _go_on_without(self, queue: Queue, request: Request, since: float, error: Retryable) -> None:
        """The request failed. If it is at fault and not the server, others no longer wait for it.

        That shows when the server takes requests of other targets, or else one that waits for it. In an outage it takes
        none, and the order stays.
        """
        task = asyncio.current_task()
        refused = isinstance(error, Correctable)
        if self._consumers == 1 or not (refused or self._context.clock.monotonic() - since > PATIENCE):
            return
        if task not in self._aside:
            self._aside.add(task)
            self._start_consumer(queue)
        if not refused and self._turns.others_than(request):
            is_at_fault = self._fails_beside_others(request)
        else:
            behind = self._turns.behind(request, refused=refused)
            is_at_fault = behind is not None and await self._takes(behind)
        if is_at_fault:
            self._turns.end(request)
            self._arrived.set()

    def _fails_beside_others(self, request: Request) -> bool:
        """Whether an attempt failed that began when the server had already taken others since an earlier failure."""
        if request in self._suspects:
            return True
        delivered = self._sender.delivered.total()
        if delivered > self._delivered_before.setdefault(request, delivered):
            self._suspects.add(request)
        return False

    async def _takes(self, request: Request) -> bool:
        """Whether the server takes a request that waits for its turn."""
        error = await self._sender.try_once(request.batch)
        if len(request.leases) > 1 and request.is_whole and isinstance(error, Permanent | Correctable):
            parts = request.parts()
            self.in_flight.update(parts)
            await self._turns.replace(request, parts)
        elif error is None:
            await self._turns.replace(request, ())
            self._dispatch.settle(request, None)
        else:
            return False
        self.in_flight.discard(request)
        self._moved.set()
        return error is None

    async def _requests(self, leased: Sequence[Request]) -> list[Request]:
        """The leased entries, joined and split as configured."""
        if not self._batching and len(leased) == 1:
            return list(leased)
        batching = self._batching
        limit: tuple[int, BatchSizer] = (batching.max_size, batching.sizer) if batching else (0, "items")
        requests: list[Request] = []
        for group in (group for alike in by_signal(leased) for group in grouped(alike, *limit)):
            try:
                requests += await join_and_split(group, *limit)
            except DecodeError as error:  # it was split, so it is one entry
                self._dispatch.lose_damaged(group[0], error)
        return requests

    async def _divide(self, request: Request) -> None:
        """The parts of a refused request are sent one by one."""
        parts = request.parts()
        self.in_flight.update(parts)
        await self._turns.add_refused(parts)

    def _give_back(self, requests: Iterable[Request]) -> None:
        for request in reversed(list(requests)):
            self.in_flight.discard(request)
            request.give_back()
        self._arrived.set()
        self._moved.set()
