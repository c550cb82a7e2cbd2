"""The ebpf receiver."""

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from otel_zernel.component import Context, Emit, Finding, Insist, Receiver
from otel_zernel.errors import Refused, Rejected
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.unavailable import Unavailable

if TYPE_CHECKING:  # what works on Linux alone is imported when it runs
    from otel_zernel_receivers.ebpf.watch import Watch

T = TypeVar("T")

GATHER_INTERVAL = 0.25
"""Seconds: the kernel has room for 14,000 events, and one job with steps of 0.3 ms has that many in a second."""


class EbpfReceiver(Receiver):
    """Watches CUDA, NCCL and PyTorch in running processes from the kernel, and changes nothing in them."""

    Config = EbpfConfig
    stability = "alpha"

    def __init__(
        self, config: EbpfConfig, context: Context, make_watch: "Callable[[EbpfConfig, Context], Watch] | None" = None
    ) -> None:
        super().__init__(config, context)
        self._make_watch = make_watch or _make_watch

    @classmethod
    def examine(cls) -> Iterable[Finding]:
        if sys.platform != "linux":
            return (Finding("kernel", "eBPF is a part of Linux; run the collector there", ok=False),)
        from otel_zernel_receivers.ebpf.doctor import examine

        return examine()

    async def run(self, emit: Emit) -> None:
        """Emits what the kernel has counted, every `interval`. Where eBPF does not work it says so in health, and tries
        again."""
        while True:
            try:
                await self._watch(emit)
            except Unavailable as problem:
                if self.context.health.problems.get(self.context.path) != str(problem):
                    self.context.logger.warning("Disabled for now: %s", problem)
                    for detail in problem.details:
                        self.context.logger.debug("Tried: %s", detail)
                self.context.report(str(problem))
                await self.context.clock.sleep(self.config.rescan_interval)

    async def _watch(self, emit: Emit) -> None:
        watch = self._make_watch(self.config, self.context)
        try:
            await _in_thread(watch.open)
            self.context.report(None)
            await self._follow(watch, emit)
        finally:
            await _in_thread(watch.close)

    async def _follow(self, watch: "Watch", emit: Emit) -> None:
        """Attaches and reads until cancelled, then reads once more."""
        clock, insist = self.context.clock, Insist(emit, self.context.clock)
        rescan_at = clock.monotonic()
        try:
            while True:
                if clock.monotonic() >= rescan_at:
                    rescan_at = clock.monotonic() + self.config.rescan_interval
                    await _in_thread(watch.attach)
                await self._pass_interval(watch)
                await self._hand_on(watch, insist)
        except asyncio.CancelledError:
            await self._hand_on(watch, emit)
            raise

    async def _pass_interval(self, watch: "Watch") -> None:
        """Waits, and switches probes where only a part of the calls is watched."""
        clock, interval = self.context.clock, watch.interval
        began = clock.monotonic()
        for pause, switch in watch.switches():
            await self._wait(pause, watch)
            await _in_thread(switch)
        await self._wait(began + interval - clock.monotonic(), watch)

    async def _wait(self, seconds: float, watch: "Watch") -> None:
        """Waits, and keeps room for events in the kernel."""
        clock = self.context.clock
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > GATHER_INTERVAL:
            await clock.sleep(GATHER_INTERVAL)
            await _in_thread(watch.gather)
        await clock.sleep(max(left, 0.0))

    async def _hand_on(self, watch: "Watch", emit: Emit) -> None:
        for batch in await _in_thread(watch.read_batches):
            try:
                await emit(batch)
            except Rejected as rejected:  # who rejected it has counted it
                self.context.logger.warning("downstream rejected %d items: %s", batch.item_count, rejected)
            except Refused:  # only at the end: until then, `Insist` waits and the kernel goes on counting
                self.context.drop(batch.item_count, "refused")
            watch.taken(batch)
            await asyncio.sleep(0)  # all of them would hold the event loop for long


def _make_watch(config: EbpfConfig, context: Context) -> "Watch":
    if sys.platform != "linux":
        raise Unavailable("eBPF is a part of Linux")
    from otel_zernel_receivers.ebpf.watch import Watch

    return Watch(config, context)


async def _in_thread(work: Callable[[], T]) -> T:
    """Does the work in a thread. When cancelled, it still waits for the work to end, which it soon does."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.gather(working, return_exceptions=True)
        raise
