"""Scrapes one GPU in its own thread, with its own schedule and timeout."""

import asyncio
from collections.abc import Callable

from opentelemetry.metrics import Counter

from otel_zernel.batch import Batch
from otel_zernel.component import Context, Emit, Insist
from otel_zernel.errors import Refused, Rejected
from otel_zernel.runtime.threads import WorkerThread
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.nvml.config import NvmlConfig
from otel_zernel_receivers.nvml.driver.library import NvmlUnavailable
from otel_zernel_receivers.nvml.gpu_slot import GpuSlot


async def deliver(batch: Batch, emit: Emit, config: NvmlConfig, context: Context) -> None:
    """Emits the points of a scrape. If downstream stays full until the next scrape, drops and counts them."""
    items = batch.item_count  # afterwards the batch belongs to the pipelines
    if not items:
        return
    try:
        async with asyncio.timeout(config.collection_interval):
            await Insist(emit, context.clock)(batch)
    except (TimeoutError, Refused):
        context.drop(items, "refused")
        context.logger.warning("Dropped a scrape of %d items: downstream is full", items)
    except Rejected:  # counted where it was rejected
        return


class GpuScraping:
    """Scrapes the GPU at one index, and reads its sample buffers between scrapes before they are overwritten.

    It outlives the driver's sessions: while its thread hangs in the driver, no second thread is started. The points of
    a late answer are sent.
    """

    def __init__(self, index: int, config: NvmlConfig, context: Context, timeouts: Counter) -> None:
        self.hung = False
        """Whether the last call did not return in time."""
        self.problem: str | None = None
        """A sentence, if the GPU does not answer or is lost."""
        self._config = config
        self._context = context
        self._timeouts = timeouts
        self._thread = WorkerThread(f"nvml {index}")
        self._call: asyncio.Task[Batch] | None = None
        self._error: str | None = None

    @property
    def busy(self) -> bool:
        """Whether the thread is inside the driver."""
        return self._thread.busy

    def close(self) -> None:
        """Discards the answer of a pending call, and lets the thread end after it."""
        if self._call:
            self._call.cancel()
        self._thread.close()

    async def run(self, slot: GpuSlot, emit: Emit, on_problem: Callable[[], None]) -> None:
        """Scrapes the slot until cancelled. Calls `on_problem` when `problem` changes. Raises `NvmlUnavailable`."""
        clock = self._context.clock
        await deliver(self._late_answer(), emit, self._config, self._context)
        due = clock.monotonic()
        while True:
            batch = await self._call_driver(slot, slot.scrape)
            self._update_problem(slot, on_problem)
            await deliver(batch, emit, self._config, self._context)
            due = max(due + self._config.collection_interval, clock.monotonic())
            await self._drain_until(due, slot)

    async def _call_driver(self, slot: GpuSlot, function: Callable[[], Batch]) -> Batch:
        """The answer of `function`, or an empty batch after the timeout.

        After a timeout, the next call does not run `function` but waits again for the pending answer.
        """
        if self._call is None:
            self._call = asyncio.create_task(self._thread.call(function))
        done, _ = await asyncio.wait({self._call}, timeout=self._config.timeout)
        self.hung = not done
        self._error = None
        if self.hung:
            gpu = {"hw.id": slot.gpu.board.identity.uuid} if slot.gpu else {semconv.GPU_INDEX: slot.index}
            self._timeouts.add(1, gpu)
            return Batch()
        call, self._call = self._call, None
        try:
            return call.result()
        except NvmlUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  # an unforeseen error must not stop the other GPUs
            self._error = f"cannot be scraped: {type(error).__name__}: {error}"
            return Batch()

    def _late_answer(self) -> Batch:
        """The answer to a call of an earlier session, if it has arrived."""
        if self._call is None or not self._call.done():
            return Batch()
        call, self._call = self._call, None
        return Batch() if call.cancelled() or call.exception() else call.result()

    async def _drain_until(self, due: float, slot: GpuSlot) -> None:
        """Waits until `due`, and meanwhile reads the sample buffers as often as needed."""
        clock = self._context.clock
        while (left := due - clock.monotonic()) > 0:
            pause = None if self.hung else slot.drain_interval
            if pause is None or pause >= left:
                return await clock.sleep(left)
            await clock.sleep(pause)
            await self._call_driver(slot, slot.drain)
        return None

    def _update_problem(self, slot: GpuSlot, on_problem: Callable[[], None]) -> None:
        predicate = f"does not answer within {self._config.timeout:g} s" if self.hung else self._error or slot.problem
        problem = f"{slot.name} {predicate}" if predicate else None
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            self._context.logger.error("%s", problem)
        else:
            self._context.logger.info("%s answers again", slot.name)
        on_problem()
