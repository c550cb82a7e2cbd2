"""The consumers of a queue: they lease entries, join and split them into requests, and send these to the exporter."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from otel_zernel.batch import ItemCount
from otel_zernel.batch.identities import Identity
from otel_zernel.component import Context
from otel_zernel.delivery_config import SendingQueueConfig
from otel_zernel.engine.delivery.dissection import Dissection
from otel_zernel.engine.delivery.losses import Losses
from otel_zernel.engine.delivery.sending import Failure, Interrupted, Sender
from otel_zernel.engine.delivery.turns import MOST_BYTES, MOST_ITEMS, TargetTurns
from otel_zernel.engine.lifetime import cancel_and_wait
from otel_zernel.engine.queues import Lease, Queue, Request, by_signal, grouped, join_and_split, joined
from otel_zernel.errors import DecodeError
from otel_zernel.telemetry import ExporterMetrics


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
        self.in_flight: set[Request] = set()
        """Requests that are leased and not settled."""
        self._batching = config.batch
        self._expires = config.max_age > 0
        self._context = context
        self._sender = sender
        self._losses = losses
        self._metrics = metrics
        self._turns = TargetTurns(needed=in_order and config.num_consumers > 1)
        self._arrived = asyncio.Event()
        """Set when the queue may have an entry."""
        self._moved = asyncio.Event()
        """Set when an entry leaves the queue, a request is settled, or an attempt fails."""
        sender.progress.on_failure = self._moved.set
        self._gathering = asyncio.Lock()
        self._flush: asyncio.Timeout | None = None
        self._draining = False
        self._tasks: list[asyncio.Task[None]] = []
        self._sending: set[asyncio.Task[None] | None] = set()
        """The consumers that have leased a request."""
        self._settling = False

    def start(self, queue: Queue, count: int) -> None:
        """Starts so many consumers of the queue."""
        queue.attach(self)
        name = self._context.path
        self._tasks = [asyncio.create_task(self._consume(queue), name=name) for _ in range(count)]

    async def settle(self) -> None:
        """Returns when the consumers have ended, each after its requests or their first failure."""
        self._settling = True
        for task in self._tasks:
            if task not in self._sending:
                task.cancel()
        await self._sender.settle()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def wake(self) -> None:
        """Ends every `wait_for_move`."""
        self._moved.set()

    async def stop(self) -> None:
        """Ends the consumers. Requests in flight return to the queue."""
        self._sender.cut()
        await cancel_and_wait(self._tasks)

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
        self.in_flight.add(request)
        try:
            failure = await self._send(request)
            if failure and failure.rejected and len(request.leases) > 1:
                await self._take_apart(request, failure)
            else:
                self._settle(request, failure)
            return failure is None
        finally:
            self.in_flight.discard(request)
            self._moved.set()

    async def _consume(self, queue: Queue) -> None:
        task = asyncio.current_task()
        while not self._settling:
            async with self._gathering:
                requests, targets = await self._next_requests(queue)
            self._sending.add(task)
            try:
                while requests:
                    await self.deliver(requests[0])
                    requests.popleft()
            except Interrupted:
                return
            finally:
                self._sending.discard(task)
                self._turns.end(targets)
                self._give_back(requests)

    async def _next_requests(self, queue: Queue) -> tuple[deque[Request], set[Identity]]:
        """Leases the oldest entries, and joins and splits them as configured. They are in flight, and it is their turn.

        Returns their targets, too.
        """
        leased: list[Request] = []
        try:
            await self._gather(queue, leased)
            targets = await self._wait_for_turn(queue, leased)
            requests = await self._requests(leased)
        except asyncio.CancelledError:
            self._give_back(leased)
            raise
        self._turns.begin(targets)
        self.in_flight.difference_update(leased)
        self.in_flight.update(requests)
        self._moved.set()
        return deque(requests), targets

    async def _gather(self, queue: Queue, leased: list[Request]) -> None:
        """Adds leased entries until they are large enough for one request, or `flush_timeout` has passed."""
        leased.append(await self._lease(queue))
        batching = self._batching
        if batching is None:
            return
        items = leased[0].batch.item_count
        try:
            async with asyncio.timeout(0 if self._draining else batching.flush_timeout) as self._flush:
                while items < batching.min_size:
                    leased.append(await self._lease(queue))
                    items += leased[-1].batch.item_count
        except TimeoutError:
            pass
        finally:
            self._flush = None

    async def _wait_for_turn(self, queue: Queue, leased: list[Request]) -> set[Identity]:
        """Returns the targets of the leased entries when no earlier request with one of them is being sent.

        Then entries that have come meanwhile join them, so that slow answers cost no throughput. In an outage none do:
        the request may be given up. If no time is left for an attempt, the entries return to the queue.
        """
        targets = self._targets(leased)
        while self._sender.is_out_of_time or not self._turns.are_free(targets):
            if self._sender.is_out_of_time:
                self._give_back(leased)
                leased[:] = [await self._lease(queue)]
                targets = self._targets(leased)
                continue
            await self.wait_for_move()
            if self._turns.are_free(targets) and not self._sender.outages.outage:
                self._join_later(queue, leased)
                targets = self._targets(leased)
        return targets

    def _targets(self, requests: Iterable[Request]) -> set[Identity]:
        return {target for request in requests for target in self._turns.targets(request.batch)}

    def _join_later(self, queue: Queue, leased: list[Request]) -> None:
        """Leases the entries behind the leased ones, as many as fit into one request and have the same signal."""
        most_items = self._batching.min_size if self._batching else MOST_ITEMS
        items = sum(request.batch.item_count for request in leased)
        size = sum(request.batch.byte_size for request in leased)
        while items < most_items and size < MOST_BYTES and leased[-1].batch.signals == leased[0].batch.signals:
            lease = queue.lease()
            if lease is None:
                return
            leased.append(self._request(lease))
            items += lease.batch.item_count
            size += lease.batch.byte_size

    async def _lease(self, queue: Queue) -> Request:
        while self._sender.is_out_of_time or (lease := queue.lease()) is None:
            self._arrived.clear()
            await self._arrived.wait()
        return self._request(lease)

    def _request(self, lease: Lease) -> Request:
        request = Request(lease.batch, (lease,))
        self.in_flight.add(request)
        self._moved.set()
        return request

    async def _requests(self, leased: Sequence[Request]) -> list[Request]:
        """The leased entries, joined and split as configured."""
        if not self._batching and len(leased) == 1:
            return list(leased)
        max_size = self._batching.max_size if self._batching else 0
        requests: list[Request] = []
        for group in grouped(leased, max_size) if self._batching else by_signal(leased):
            try:
                requests += await join_and_split(group, max_size)
            except DecodeError as error:  # it was split, so it is one entry
                self._lose_damaged(group[0], error)
        return requests

    def _give_back(self, requests: Iterable[Request]) -> None:
        for request in reversed(list(requests)):
            self.in_flight.discard(request)
            request.give_back()
        self._arrived.set()
        self._moved.set()

    async def _send(self, request: Request) -> Failure | None:
        return await self._sender.send(request.batch, request.expires_ns if self._expires else float("inf"))

    def _settle(self, request: Request, failure: Failure | None) -> None:
        """The request is delivered or given up."""
        if failure is None:
            self._metrics.sent(request.batch)
        elif failure.expired:
            self._losses.expired(request.batch.counts)
        else:
            self._losses.gave_up(request.batch, failure.error, rejected=failure.rejected)
        request.acknowledge()

    def _lose_damaged(self, request: Request, error: DecodeError) -> None:
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
                self._settle(smaller, outcome)
                self.in_flight.difference_update(group)
            if rest := dissection.rest():
                self._settle(joined(rest), failure)
        finally:
            self.in_flight.difference_update(parts)
