"""The supervision of a receiver: after a crash it restarts with backoff, and its health shows the problem."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from otel_zernel.component import Context, Emit
from otel_zernel.engine.lifetime import was_cancelled
from otel_zernel.engine.pipelines.fan_out import FanOut
from otel_zernel.errors import CannotStart, ReceiverFailed

FIRST_WAIT = 1.0
"""Seconds between the first crash and the restart; doubles up to `LONGEST_WAIT`."""
LONGEST_WAIT = 60.0
"""Also the seconds after which a restarted receiver counts as healthy."""


@dataclass(frozen=True, slots=True)
class SupervisedReceiver:
    """One receiver: `run_once` constructs it and runs it with `fan_out` as its `emit`."""

    run_once: Callable[[Emit], Awaitable[None]]
    fan_out: FanOut
    context: Context
    count_restart: Callable[[], None]

    async def run(self, *, persistent: bool = False) -> None:
        """Returns when the receiver has finished.

        Raises the receiver's `CannotStart` if none of its batches was accepted yet. A `persistent` receiver is
        restarted instead: it ran before, so its requirements may be met again.
        """
        clock, wait, sentence = self.context.clock, FIRST_WAIT, ""
        recovery: asyncio.Task[None] | None = None
        while True:
            started = clock.monotonic()
            try:
                await self.run_once(self.fan_out)
            except CannotStart as error:
                if not persistent and not self.fan_out.accepted.total:
                    raise
                if not persistent:
                    return self._report(f"stopped: {error}")
                self._report(f"cannot start; trying again in {wait:g} s: {error}")
            except ReceiverFailed as failed:
                wait = self._next_wait(wait, started)
                self._report(
                    f"failed, restarts in {wait:g} s: {failed}", is_known=sentence == str(failed) and wait > FIRST_WAIT
                )
                sentence = str(failed)
            except (Exception, asyncio.CancelledError) as error:  # a receiver's bug costs a restart, not the process
                if was_cancelled(error):
                    raise
                wait = self._next_wait(wait, started)
                self._report(f"crashed, restarts in {wait:g} s: {type(error).__name__}: {error}", error)
            else:
                return self.context.report(None)
            finally:
                if recovery:
                    recovery.cancel()
            await clock.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            self.count_restart()
            recovery = asyncio.create_task(self._recover(), name=f"{self.context.path} recovery")

    async def _recover(self) -> None:
        await self.context.clock.sleep(LONGEST_WAIT)
        self.context.report(None)

    def _next_wait(self, wait: float, started: float) -> float:
        """The first wait again, if the receiver has run for long."""
        return FIRST_WAIT if self.context.clock.monotonic() - started > LONGEST_WAIT else wait

    def _report(self, problem: str, error: BaseException | None = None, *, is_known: bool = False) -> None:
        """Shows the problem in the health, and logs it as an error unless `is_known`."""
        self.context.report(problem)
        if is_known:
            self.context.logger.debug("The receiver %s", problem)
        else:
            self.context.logger.error("The receiver %s", problem, exc_info=error)
