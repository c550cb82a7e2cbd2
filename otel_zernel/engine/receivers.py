"""Keeping a receiver at work: it restarts with backoff after a crash and its trouble is visible in health."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from otel_zernel.component import Context, Emit
from otel_zernel.engine.lifetime import was_cancelled
from otel_zernel.engine.pipeline import Entrance
from otel_zernel.errors import CannotStart

FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0


@dataclass(frozen=True, slots=True)
class Supervised:
    """One receiver: `run_once` makes a fresh one and runs it into `entrance`."""

    run_once: Callable[[Emit], Awaitable[None]]
    entrance: Entrance
    context: Context
    restarted: Callable[[], None]

    async def run(self) -> None:
        """Returns when the receiver has finished. Raises its `CannotStart` if nothing has come from it yet."""
        loop = asyncio.get_running_loop()
        wait = FIRST_WAIT
        recovered: asyncio.TimerHandle | None = None
        while True:
            began = loop.time()
            try:
                await self.run_once(self.entrance)
            except CannotStart as error:
                if not (self.entrance.accepted_points or self.entrance.accepted_spans):
                    raise
                return self._trouble(f"stopped: {error}")
            except (Exception, asyncio.CancelledError) as error:  # a receiver's bug costs a restart, not the process
                if was_cancelled(error):
                    raise
                wait = FIRST_WAIT if loop.time() - began > LONGEST_WAIT else wait
                self._trouble(f"crashed, restarts in {wait:g} s: {type(error).__name__}: {error}", error)
            else:
                return self.context.report(None)
            finally:
                if recovered:
                    recovered.cancel()
            await self.context.clock.sleep(wait)
            wait = min(wait * 2, LONGEST_WAIT)
            self.restarted()
            recovered = loop.call_later(LONGEST_WAIT, self.context.report, None)

    def _trouble(self, sentence: str, error: BaseException | None = None) -> None:
        self.context.report(sentence)
        self.context.logger.error("The receiver %s", sentence, exc_info=error)
