"""The live state: 64 ranks with 10 steps a second, 1,024 ranks at once, and 1,000 readers of the stream."""

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

from benchmarks import BenchmarkRow
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.runtime.garbage import freeze_newer
from otel_zernel.testing import FakeClock, make_context
from otel_zernel.types import Address
from otel_zernel_exporters.live import LiveExporter
from otel_zernel_exporters.live.live_state import LiveState
from otel_zernel_libraries.serving.limits import ServerLimits
from otel_zernel_libraries.serving.serving import serve
from tests.api_server import FakeApiServer
from tests.exporters.live.live_runs import PROCESS, SECOND, START, durations, phase_times, points, step

RANKS = 64
STEPS = 10
SECONDS = 20
READERS = 1000
PUSHES = 20
_PHASES = ("data_loading", "gpu_compute", "nccl_collective", "optimizer_step", "unknown")
_READER = f"""
import socket, sys
sockets = []
for _ in range({READERS}):
    one = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    one.sendall(b"GET /api/live/stream HTTP/1.1\\r\\nhost: localhost\\r\\n\\r\\n")
    sockets.append(one)
import selectors
chosen = selectors.DefaultSelector()
for one in sockets:
    chosen.register(one, selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in chosen.select():
        if not key.fileobj.recv(1 << 16):
            sys.exit()
"""


def run() -> list[BenchmarkRow]:
    """Feeds a state for 20 s of training, and measures the CPU time of each part."""
    return [*_training(), *asyncio.run(_many_ranks()), *asyncio.run(_readers())]


def _new_state(clock: FakeClock) -> LiveState:
    return LiveState(clock, history=200, expiration=300)


def _process(rank: int) -> dict[str, AttributeValue]:
    return {**PROCESS, "process.pid": rank, "zernel.rank": rank, "zernel.world_size": RANKS, "zernel.job.id": "j"}


def _second(number: int, ranks: int, steps: int, segments: int = 10) -> Iterator[Batch]:
    """The batches of one second: reports of phases, traced steps, and readings of nvml."""
    now = START + number * SECOND
    for rank in range(ranks):
        process = _process(rank)
        yield phase_times(process, time_ns=now, **dict.fromkeys(_PHASES, number + rank / 1000))
        shares = [({"zernel.phase": one, "zernel.phase.source": "scopes"}, 0.2) for one in _PHASES]
        yield points("zernel.phase.fraction", shares, process, time_ns=now)
        yield points("zernel.step.rate", [({}, 10 + rank / 1000)], process, time_ns=now)
        yield points("zernel.steps", [({"zernel.step.kind": "training"}, number * steps)], process, time_ns=now)
        yield durations(*(0.1 + at / 1000 for at in range(steps)), resource=process, time_ns=now)
        for at in range(steps):
            yield _traced(step(number * steps + at, now + at * SECOND // steps, SECOND // steps, process), segments)
        gpu = {"hw.id": f"GPU-{rank}"}
        for name in ("hw.gpu.utilization", "hw.power", "hw.temperature", "hw.gpu.memory.usage"):
            yield points(name, [(gpu, number + rank / 1000)], {"host.name": "n1"}, time_ns=now)


def _traced(batch: Batch, segments: int) -> Batch:
    """With the spans of the parts of the step. The state reads only their names."""
    (scope,) = batch.edit_spans().resource_spans[0].scope_spans
    for _ in range(segments):
        scope.spans.add().CopyFrom(scope.spans[0])
        scope.spans[-1].name = "forward"
    return batch


def _add(state: LiveState, batches: list[Batch]) -> float:
    """The CPU time (s) of adding."""
    begun = time.process_time()
    for batch in batches:
        state.add(batch)
    return time.process_time() - begun


def _training() -> Iterator[BenchmarkRow]:
    clock = FakeClock(START)
    state = _new_state(clock)
    adding, rendering, size = 0.0, 0.0, 0
    for number in range(1, SECONDS + 1):
        adding += _add(state, list(_second(number, RANKS, STEPS)))
        clock.advance(1)
        seq = state.published.seq
        begun = time.process_time()
        events = state.advance({}).since(seq) or []
        rendering += time.process_time() - begun
        size += sum(len(event) for _, event in events)
    name = f"live: {RANKS} ranks x {STEPS} steps/s"
    share = adding / SECONDS
    yield BenchmarkRow(f"{name}, keeping the state", f"{share:.1%} of a core", "<= 10 %", share <= 0.1)
    share = rendering / SECONDS
    yield BenchmarkRow(f"{name}, a delta a second", f"{share:.1%} of a core", "<= 5 %", share <= 0.05)
    yield BenchmarkRow(f"{name}, size of a delta", f"{size / SECONDS / 1e3:.0f} kB")


async def _many_ranks() -> list[BenchmarkRow]:
    """How late a timer of the event loop is while 1,024 ranks, each with a GPU, report each second."""
    context = make_context("exporters", "live", clock=SystemClock())
    exporter = LiveExporter(LiveExporter.Config.model_validate({"api": None}), context)
    seconds = [Batch.join(list(_second(number, 1024, 20 if number == 1 else 1, segments=0))) for number in range(1, 8)]
    sys.setswitchinterval(0.0005)  # that of a collector
    freeze_newer()
    idle = await _lateness(asyncio.sleep(3))
    await exporter.export(seconds.pop(0))
    rows = []
    for name, work in {"a batch a second": _report(exporter, seconds), "the whole state": _encode(exporter)}.items():
        late = await _lateness(work)
        ok = late[99] <= 0.01
        shown = " / ".join(f"{one[99] * 1e3:.1f}, {one[100] * 1e3:.1f} ms" for one in (late, idle))
        value = f"p99 and longest {shown} (idle)"
        rows.append(BenchmarkRow(f"live: 1,024 ranks, {name}, the event loop is late", value, "p99 <= 10 ms", ok))
    return rows


async def _report(exporter: LiveExporter, seconds: list[Batch]) -> None:
    """A batch with the reports of all ranks each second, and a delta."""
    for batch in seconds:
        await exporter.export(batch)
        await exporter._stream.push()


async def _encode(exporter: LiveExporter) -> None:
    """The whole state for a new reader."""
    for _ in range(5):
        await exporter._stream._whole_state()
        await asyncio.sleep(0.2)


async def _lateness(work: Coroutine[Any, Any, None]) -> list[float]:
    """The quantiles (0 to 100 %) of the lateness (s) of a timer of 1 ms during the work."""
    late, running = [], asyncio.create_task(work)
    while not running.done():
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        late.append(time.perf_counter() - begun - 0.001)
    await running
    late.sort()
    return [late[min(len(late) * share // 100, len(late) - 1)] for share in range(101)]


async def _readers() -> list[BenchmarkRow]:
    """The CPU time of this process for a push to all readers, and its memory."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    api, changes = FakeApiServer(), {"number": 0}
    context = make_context("exporters", "live", clock=SystemClock(), extensions={"api": api})
    exporter = LiveExporter(LiveExporter.Config.model_validate({"push_interval": "1h"}), context)
    async with AsyncExitStack() as stack:
        address = await stack.enter_async_context(
            serve(api.app, Address("127.0.0.1", 0), "benchmark", limits=ServerLimits(connections=2 * READERS))
        )
        await stack.enter_async_context(exporter)
        exporter._stream._collector = lambda: {"text": f"{changes['number']:04} " * 200}
        reader = subprocess.Popen([sys.executable, "-c", _READER, str(address.port)], stdout=subprocess.PIPE)  # noqa: ASYNC220
        stack.callback(reader.kill)
        stream = exporter._stream
        await _until(lambda: len(stream.readers) == READERS)
        await asyncio.sleep(1)
        begun = time.process_time()
        for _ in range(PUSHES):
            changes["number"] += 1
            await stream.push()
            await _until(lambda: not any(reader.wake.is_set() for reader in stream.readers))
        spent = (time.process_time() - begun) / PUSHES
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    name = f"live: a delta of 1 kB to {READERS:,} readers"
    return [BenchmarkRow(name, f"{spent * 1e3:.0f} ms of CPU", "<= 100 ms", spent <= 0.1)]


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # a benchmark without events
        await asyncio.sleep(0.002)
