"""A crashed receiver restarts with backoff, and counts as healthy again after a while: all by the injected clock."""

import asyncio
from functools import partial

import pytest
from opentelemetry.metrics import NoOpMeter

from otel_zernel.component import Context, Emit
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.engine.receivers import LONGEST_WAIT, SupervisedReceiver
from otel_zernel.errors import ReceiverFailed
from otel_zernel.telemetry import Instruments
from otel_zernel.testing import FakeClock, make_context, until


class SlowClock(FakeClock):
    """A clock whose sleepers wake only when a test advances it far enough."""

    async def sleep(self, seconds: float) -> None:
        end = self.monotonic() + seconds
        while self.monotonic() < end:  # noqa: ASYNC110  # `advance` is called from outside of any task
            await asyncio.sleep(0)


class Supervision:
    """A supervised receiver that crashes in its first runs."""

    def __init__(self, crashes: int, error: type[Exception] = RuntimeError) -> None:
        self.clock = SlowClock()
        self.context: Context = make_context("receivers", "source", clock=self.clock)
        self.runs = self.restarts = 0
        self._crashes = crashes
        self._error = error
        metrics = partial(Instruments(NoOpMeter("test")).receiver, "source")
        receiver = SupervisedReceiver(self._run_once, FanOut([], metrics), self.context, self._count_restart)
        self.task = asyncio.create_task(receiver.run())

    async def _run_once(self, emit: Emit) -> None:
        self.runs += 1
        if self.runs <= self._crashes:
            raise self._error("the receiver broke")
        await asyncio.Event().wait()

    def _count_restart(self) -> None:
        self.restarts += 1

    @property
    def problem(self) -> str | None:
        return self.context.health.problems.get("receivers::source")

    async def advance(self, seconds: float) -> None:
        """Advances the clock, and lets everything that is due by then run."""
        self.clock.advance(seconds)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_receiver_restarts_after_1_s_and_then_after_2_s() -> None:
    supervision = Supervision(crashes=2)
    await until(lambda: supervision.problem)
    assert supervision.problem == "crashed, restarts in 1 s: RuntimeError: the receiver broke"
    await supervision.advance(0.9)
    assert supervision.runs == 1
    await supervision.advance(0.2)
    assert supervision.runs == 2
    assert "restarts in 2 s" in (supervision.problem or "")
    await supervision.advance(2.1)
    assert (supervision.runs, supervision.restarts) == (3, 2)
    supervision.task.cancel()


async def test_a_problem_is_cleared_when_the_restarted_receiver_has_run_for_a_while() -> None:
    supervision = Supervision(crashes=1)
    await until(lambda: supervision.problem)
    await supervision.advance(1.1)
    assert supervision.runs == 2
    await supervision.advance(LONGEST_WAIT - 1)
    assert supervision.problem
    await supervision.advance(2.0)
    assert supervision.problem is None
    supervision.task.cancel()


async def test_a_known_reason_is_one_sentence_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once while restarts do not help."""
    supervision = Supervision(crashes=3, error=ReceiverFailed)
    await until(lambda: supervision.problem)
    assert supervision.problem == "failed, restarts in 1 s: the receiver broke"
    await supervision.advance(1.1)
    assert supervision.problem == "failed, restarts in 2 s: the receiver broke"
    await supervision.advance(2.1)
    assert supervision.problem == "failed, restarts in 4 s: the receiver broke"
    supervision.task.cancel()
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.message == "The receiver failed, restarts in 1 s: the receiver broke"
    assert record.exc_info is None
