"""Turns: one request after another sends the metrics of a target (its job and instance), in the order of the queue."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_zernel.batch import Signal
from otel_zernel.batch.identities import Identity, identities_of
from otel_zernel.engine.queues import Request
from otel_zernel.engine.unbroken import Unbroken
from otel_zernel.runtime.threads import compute

MOST_ITEMS: Final = 8192
MOST_BYTES: Final = 2 << 20
"""The size at which no more requests join one that waited for its turn. Servers accept 4 MiB by default."""
MOST_WAITING: Final = 256
MOST_BYTES_WAITING: Final = 4 << 20
"""The requests that wait for their turn, and their bytes, at which the queue keeps the others."""

_SMALL: Final = 64 << 10
"""Bytes of metrics whose targets are read in less than 3 ms."""


class Turn(NamedTuple):
    """Requests to send together, and all their targets."""

    requests: list[Request]
    targets: frozenset[Identity]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    request: Request
    targets: frozenset[Identity]
    """None for spans and log records."""
    alone: bool
    """Whether no other request joins it, because it may be the one that the server refuses."""


@dataclass(slots=True)
class _Sending:
    targets: frozenset[Identity]
    trials: int = 0
    """How often another request was tried in its place."""


class TargetTurns:
    """The requests that wait, and those that are being sent. One waits for each earlier one with a common target.

    Otherwise a batch that is tried again arrives after newer ones, which a store in the order of time refuses.
    """

    def __init__(self, *, needed: bool, most_items: int = MOST_ITEMS) -> None:
        """`needed`: whether there are several consumers, and the exporter wants the order."""
        self._needed = needed
        self._most_items = most_items
        self._waiting: list[_Waiting] = []
        """In the order of the queue."""
        self._sending: dict[Request, _Sending] = {}

    @property
    def crowded(self) -> Collection[Signal]:
        """The signals of the waiting requests, if no more should wait."""
        size = sum(waiting.request.batch.byte_size for waiting in self._waiting)
        if len(self._waiting) < MOST_WAITING and size < MOST_BYTES_WAITING:
            return ()
        return {signal for waiting in self._waiting for signal in waiting.request.batch.signals}

    async def add(self, requests: Iterable[Request]) -> None:
        """The requests wait behind the others. Calls must not overlap."""
        with Unbroken() as unbroken:
            added = [await self._wait(request, unbroken) for request in requests]
            self._waiting += added

    async def add_refused(self, parts: Iterable[Request]) -> None:
        """The parts of a refused request, which has not ended yet, wait before the others, each alone."""
        with Unbroken() as unbroken:
            added = [await self._wait(part, unbroken, alone=True) for part in parts]
            self._waiting[:0] = added

    def next(self, without: Collection[Signal], *, join: bool) -> Turn | None:
        """The first request that waits for no other, and with `join` those behind it that fit into one request."""
        blocked = {target for sending in self._sending.values() for target in sending.targets}
        taken: list[_Waiting] = []
        for waiting in self._waiting:
            is_free = blocked.isdisjoint(waiting.targets) and not any(signal in without for signal in _signals(waiting))
            if is_free and (not taken or self._joins(waiting, taken)):
                taken.append(waiting)
                if not join or waiting.alone or not waiting.targets:
                    break
            else:
                blocked |= waiting.targets
        self._waiting = [waiting for waiting in self._waiting if waiting not in taken] if taken else self._waiting
        if not taken:
            return None
        return Turn([entry.request for entry in taken], frozenset().union(*(entry.targets for entry in taken)))

    def behind(self, request: Request, *, refused: bool) -> Request | None:
        """A request to try in the place of this one, for which it waits, and for no other. It waits on.

        Mostly it is the next, so that few are overtaken if the server just came back. After a refusal they take turns.
        """
        if not (own := self._sending.get(request)):
            return None
        blocked = {target for sending in self._sending.values() if sending is not own for target in sending.targets}
        behind = [
            waiting.request
            for waiting in self._waiting
            if not own.targets.isdisjoint(waiting.targets) and blocked.isdisjoint(waiting.targets)
        ]
        if not behind:
            return None
        own.trials += 1
        skipped = own.trials - 1 if refused else (own.trials & -own.trials).bit_length() - 1  # 0, 1, 0, 2, 0, 1, 0, 3
        return behind[skipped % len(behind)]

    def others_than(self, request: Request) -> bool:
        """Whether requests of other targets are being sent."""
        return any(sending is not request for sending in self._sending)

    async def replace(self, request: Request, parts: Iterable[Request]) -> None:
        """Parts of a request that still waits take its place, each alone. Without parts it waits no longer."""
        with Unbroken() as unbroken:
            added = [await self._wait(part, unbroken, alone=True) for part in parts]
            for place, waiting in enumerate(self._waiting):
                if waiting.request is request:
                    self._waiting[place : place + 1] = added
                    return

    def take_all(self) -> list[Request]:
        """The waiting requests, which wait no longer."""
        taken, self._waiting = self._waiting, []
        return [waiting.request for waiting in taken]

    def begin(self, request: Request, targets: frozenset[Identity]) -> None:
        """The request, of one turn, is being sent."""
        if targets:
            self._sending[request] = _Sending(targets)

    def end(self, request: Request) -> None:
        """The request is delivered, given up or given back, or others no longer wait for it."""
        self._sending.pop(request, None)

    async def _wait(self, request: Request, unbroken: Unbroken, *, alone: bool = False) -> _Waiting:
        """Reads the targets of the request. There may be thousands."""
        targets: frozenset[Identity] = frozenset()
        if self._needed and "metrics" in request.batch.signals:  # the order of spans and log records does not matter
            metrics = request.batch.bytes_of("metrics")
            if len(metrics) <= _SMALL:
                targets = frozenset(identities_of(metrics))
            else:
                targets = await unbroken.wait(compute(lambda: frozenset(identities_of(metrics))))
        return _Waiting(request, targets, alone)

    def _joins(self, waiting: _Waiting, taken: list[_Waiting]) -> bool:
        batches = [entry.request.batch for entry in (*taken, waiting)]
        return (
            not waiting.alone
            and not waiting.request.batch.stays_alone
            and taken[0].request.is_whole
            and waiting.request.is_whole
            and waiting.request.batch.signals == taken[0].request.batch.signals
            and sum(batch.item_count for batch in batches) <= self._most_items
            and sum(batch.byte_size for batch in batches) <= MOST_BYTES
        )


def _signals(waiting: _Waiting) -> Collection[Signal]:
    return waiting.request.batch.signals
