"""The waiting around a session: each batch is emitted once, whatever interrupts the receiver."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.errors import Refused, Rejected
from otel_zernel.testing import Downstream, Dropped, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import EncodedReading, Session
from tests.otlp import data, gauge

BATCHES = 3


class SilentWakeup:
    """Never becomes readable."""

    def __init__(self) -> None:
        self._fds = os.pipe()

    def fileno(self) -> int:
        return self._fds[0]

    def reset(self) -> None:
        raise AssertionError

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)


class CountingSession:
    """Each reading has three batches of one point. The points are numbered."""

    interval = 0.001

    def __init__(self) -> None:
        self.wakeup = SilentWakeup()
        self.readings: list[EncodedReading] = []
        self.is_open = True

    def attach(self) -> None:
        pass

    def make_room(self) -> bool:
        return False

    def gather(self) -> bool:
        return False

    def switches(self) -> list[object]:
        return []

    def read(self, *, is_last: bool = False) -> EncodedReading:
        number = len(self.readings)
        batches = tuple(numbered(BATCHES * number + place) for place in range(BATCHES))
        self.readings.append(EncodedReading(number + 1, batches))
        return self.readings[-1]

    @contextmanager
    def open(self, config: EbpfConfig, context: Context) -> Iterator[Session]:
        try:
            yield cast("Session", self)
        finally:
            self.wakeup.close()
            self.is_open = False


def numbered(number: int) -> Batch:
    return Batch(metrics=data(gauge("number", NumberDataPoint(as_int=number))))


def number_of(batch: Batch) -> int:
    return batch.metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].as_int


@pytest.fixture
def session() -> CountingSession:
    return CountingSession()


def receiver_of(session: CountingSession, context: Context) -> EbpfReceiver:
    return EbpfReceiver(EbpfConfig(), context, session.open)


async def test_batches_of_a_reading_that_is_interrupted_are_emitted_at_the_end(session: CountingSession) -> None:
    accepted: list[int] = []
    is_blocked = asyncio.Event()

    async def emit(batch: Batch, *, transport: str = "") -> None:
        number = number_of(batch)
        batch.edit_metrics().Clear()  # as a pipeline may, which owns the batch
        if len(accepted) == BATCHES + 1 and not is_blocked.is_set():
            is_blocked.set()
            await asyncio.Event().wait()
        accepted.append(number)

    running = asyncio.create_task(receiver_of(session, make_context(clock=SystemClock())).run(emit))
    await is_blocked.wait()
    running.cancel()
    await asyncio.wait([running])
    assert len(session.readings) == 3, "one more at the end"
    assert accepted == list(range(3 * BATCHES))
    assert not session.is_open


async def test_refused_batches_are_offered_again(session: CountingSession) -> None:
    downstream = Downstream(refuse=3)
    running = asyncio.create_task(receiver_of(session, make_context(clock=SystemClock())).run(downstream))
    await until(lambda: len(downstream.batches) > BATCHES)
    running.cancel()
    await asyncio.wait([running])
    assert [number_of(batch) for batch in downstream.batches] == list(range(BATCHES * len(session.readings)))


async def test_batches_that_are_refused_at_the_end_are_counted_as_dropped(session: CountingSession) -> None:
    context = make_context(clock=SystemClock())

    async def emit(batch: Batch, *, transport: str = "") -> None:
        raise Refused("always")

    running = asyncio.create_task(receiver_of(session, context).run(emit))
    await until(lambda: session.readings)
    running.cancel()
    await asyncio.wait([running])
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts == {"refused": 2 * BATCHES}


async def test_a_rejected_batch_is_logged_and_not_offered_again(
    session: CountingSession, caplog: pytest.LogCaptureFixture
) -> None:
    offered: list[int] = []

    async def emit(batch: Batch, *, transport: str = "") -> None:
        offered.append(number_of(batch))
        if offered[-1] == 1:
            raise Rejected("no")

    running = asyncio.create_task(receiver_of(session, make_context(clock=SystemClock())).run(emit))
    await until(lambda: len(offered) > BATCHES)
    running.cancel()
    await asyncio.wait([running])
    assert offered == sorted(set(offered))
    assert caplog.text.count("Downstream rejected a batch of 1 items: no") == 1


class SlowSession(CountingSession):
    """A reading lasts until room was made twice meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.rooms = 0

    def make_room(self) -> bool:
        self.rooms += 1
        return False

    def read(self, *, is_last: bool = False) -> EncodedReading:
        before = self.rooms
        while not is_last and self.rooms < before + 2:
            time.sleep(0.001)
        return super().read(is_last=is_last)


async def test_events_leave_the_kernel_while_a_reading_lasts() -> None:
    session = SlowSession()
    running = asyncio.create_task(receiver_of(session, make_context(clock=SystemClock())).run(Downstream()))
    await until(lambda: len(session.readings) > 1)
    running.cancel()
    await asyncio.wait([running])
    assert session.rooms >= 4
