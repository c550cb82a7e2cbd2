"""The ebpf receiver."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from otel_zernel.component import Context, Emit, Finding, Insist, Receiver
from otel_zernel.engine.threads import run_in_thread
from otel_zernel.errors import Refused, Rejected
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable

if TYPE_CHECKING:  # what works on Linux alone is imported when it runs
    from otel_zernel_receivers.ebpf.kernel.ring import Bell
    from otel_zernel_receivers.ebpf.session import Watch

SHORTEST_INTERVAL = 0.1
"""Seconds between readings, where processes end one after the other."""
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
    def examine(cls, config: EbpfConfig | None = None) -> Iterable[Finding]:
        if sys.platform != "linux":
            return (Finding("kernel", "eBPF is a part of Linux; run the collector there", ok=False),)
        from otel_zernel_receivers.ebpf.doctor import examine

        return examine(config or EbpfConfig())

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
            await run_in_thread(watch.open)
            self.context.report(None)
            await self._follow(watch, emit)
        finally:
            await run_in_thread(watch.close)

    async def _follow(self, watch: "Watch", emit: Emit) -> None:
        """Attaches and reads until cancelled, then reads once more."""
        clock, insist = self.context.clock, Insist(emit, self.context.clock)
        rescan_at = clock.monotonic()
        try:
            with _heard(watch.bell) as has_rung:
                while True:
                    if clock.monotonic() >= rescan_at:
                        rescan_at = clock.monotonic() + self.config.rescan_interval
                        await run_in_thread(watch.attach)
                    await self._pass_interval(watch, has_rung)
                    await self._hand_on(watch, insist)
        except asyncio.CancelledError:
            await self._hand_on(watch, emit)
            raise

    async def _pass_interval(self, watch: "Watch", has_rung: asyncio.Event) -> None:
        """Waits, and switches probes where only a part of the calls is watched; where all are, not beyond the end of a
        process."""
        clock, interval = self.context.clock, watch.interval
        began = clock.monotonic()
        switches = watch.switches()
        for pause, switch in switches:
            await self._wait(pause, watch)
            await run_in_thread(switch)
        left = began + interval - clock.monotonic()
        await self._wait(min(SHORTEST_INTERVAL, left), watch)
        rest = self._wait(left - SHORTEST_INTERVAL, watch)
        await (rest if switches else _either(rest, has_rung.wait()))
        has_rung.clear()

    async def _wait(self, seconds: float, watch: "Watch") -> None:
        """Waits, and keeps room for events in the kernel."""
        clock = self.context.clock
        end = clock.monotonic() + seconds
        while (left := end - clock.monotonic()) > GATHER_INTERVAL:
            await clock.sleep(GATHER_INTERVAL)
            await run_in_thread(watch.gather)
        await clock.sleep(max(left, 0.0))

    async def _hand_on(self, watch: "Watch", emit: Emit) -> None:
        for batch in await run_in_thread(watch.read_batches):
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
    from otel_zernel_receivers.ebpf.session import Watch

    return Watch(config, context)


@contextmanager
def _heard(bell: "Bell") -> Iterator[asyncio.Event]:
    """An event that is set whenever the bell rings."""
    has_rung, loop = asyncio.Event(), asyncio.get_running_loop()

    def hear() -> None:
        bell.hush()
        has_rung.set()

    loop.add_reader(bell, hear)
    try:
        yield has_rung
    finally:
        loop.remove_reader(bell)


async def _either(*waits: Coroutine[Any, Any, object]) -> None:
    """Returns when one of them does, and cancels the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
