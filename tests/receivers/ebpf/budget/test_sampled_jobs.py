"""Sampling in real jobs: scaled counts are close to the true ones, and slow jobs are counted exactly."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import NamedTuple

import numpy as np
import pytest

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.budget import overhead
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes import loading
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import Session
from tests.receivers.ebpf.budget.deciding import (
    LAUNCH,
    PREPARATIONS,
    SHARE,
)
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import (
    attributes_of,
    calls,
    doubles,
    histogram_points,
    metrics_of,
    numbers,
    require,
    spans_of,
)


@pytest.fixture
def decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "AVERAGED", 1.0)


@contextlib.asynccontextmanager
async def received(max_overhead: float, mode: Mode = Mode.SESSION) -> AsyncIterator[Downstream]:
    def open_session(config: EbpfConfig, context: Context) -> AbstractContextManager[Session]:
        return Session.open(config, context, lambda limits: loading.load(limits, (mode,)))

    config = EbpfConfig.model_validate({"interval": "500ms", "max_overhead": max_overhead})
    receiver, downstream = EbpfReceiver(config, make_context(clock=SystemClock()), open_session), Downstream()
    running = asyncio.create_task(receiver.run(downstream))
    try:
        await until(lambda: len(downstream.batches) > 0)
        yield downstream
    finally:
        running.cancel()
        await asyncio.wait([running])


@contextlib.asynccontextmanager
async def repeating(work: Callable[[], None], every: float) -> AsyncIterator[None]:
    """Repeats the work in a thread."""
    ending = False

    def repeat() -> None:
        due = time.monotonic()
        while not ending:
            work()
            due = max(due + every, time.monotonic() - 10 * every)
            time.sleep(max(due - time.monotonic(), 0))

    thread = asyncio.create_task(asyncio.to_thread(repeat))
    try:
        yield
    finally:
        ending = True
        await thread


@contextlib.asynccontextmanager
async def paced(program: Program, *commands: str) -> AsyncIterator[None]:
    """Sends the commands to the program again and again, without waiting for it. Kills it at the end."""

    def send() -> None:
        with contextlib.suppress(BrokenPipeError):
            while True:
                for command in commands:
                    program.send(command)

    thread = asyncio.create_task(asyncio.to_thread(send))
    try:
        yield
    finally:
        program.kill()
        await thread
        assert program.process.stdin
        with contextlib.suppress(BrokenPipeError):
            program.process.stdin.close()


def sampled(batches: list[Batch], pid: int, metric: str = LAUNCH) -> list[Batch]:
    """The batches in which the metric is marked as sampled."""
    return [batch for batch in batches if histogram_points(batch, metric, process_pid=pid, zernel_sampled=True)]


def probe_load(batches: list[Batch], pid: int) -> float:
    """The ratio of a CPU that probes took of a process, by `zernel.probe.time`."""
    if not batches:
        return 0.0
    spent = sum(sum(doubles(batch, "zernel.probe.time", process_pid=pid)) for batch in batches)
    return spent / (sum(end - start for start, end in map(period, batches)) / 1e9)


def period(batch: Batch) -> tuple[int, int]:
    """The start and the end of a batch's reading, ns since 1970."""
    (point,) = metrics_of(batch)["zernel.probe.floor"].gauge.data_points
    return point.start_time_unix_nano, point.time_unix_nano


async def test_a_job_at_full_speed_is_sampled_until_probes_take_less_than_the_limit(
    loadable: None, decided_at_once: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    with standin.start(capacity=1 << 23, loads=["libcudart.so.12"]) as program:
        program.do("cudaLaunchKernel")  # loads libcuda
        async with (
            received(0.1) as downstream,
            repeating(lambda: program.do("cudaLaunchKernel times=1000"), 0),
        ):
            await until(
                lambda: 0 < probe_load(sampled(downstream.batches, program.pid)[1:][-2:], program.pid) < 0.1, 30
            )
    steady = sampled(downstream.batches, program.pid)[1:]
    assert all(0 < share < 1 for batch in steady for share in doubles(batch, SHARE, zernel_probe_name="launch"))
    assert caplog.text.count("Sampled from here on: launches") == 1


async def test_while_operators_are_sampled_their_mark_is_missing_and_no_run_is_emitted(
    loadable: None, decided_at_once: None, standin: Standin
) -> None:
    def lacks_operators(batch: Batch) -> bool:
        found = numbers(batch, "zernel.ebpf.missing_marks", process_pid=program.pid, zernel_mark="operators")
        return found == [1]

    operators = 5

    def step() -> None:
        for command in (f"addmm times={operators}", "open Optimizer.step#A", "close"):
            program.do(command)

    with standin.start(capacity=1 << 23, loads=["libtorch_cpu.so"]) as program:
        async with (
            received(0.01) as downstream,
            repeating(step, 0.02),
        ):
            await until(lambda: any(runs_in(batch, program) for batch in downstream.batches), 60)
            operators = 2000
            await until(lambda: sum(map(lacks_operators, downstream.batches)) >= 4, 60)
    first, *_, last = [number for number, batch in enumerate(downstream.batches) if lacks_operators(batch)]
    assert any(runs_in(batch, program) for batch in downstream.batches[:first])
    assert not any(runs_in(batch, program) for batch in downstream.batches[first : last + 1])
    shares = [doubles(batch, SHARE, zernel_probe_name="operators") for batch in downstream.batches[first : last + 1]]
    assert all(share < 1 for share in chain(*shares))


def runs_in(batch: Batch, program: Program) -> list[object]:
    """The runs of operators of the program."""
    spans = map(attributes_of, spans_of(batch, program.pid))
    return [span for span in spans if span["zernel_interval"] == "operators"]


class Work(NamedTuple):
    """Calls of a function, and the metric that counts them."""

    function: str
    group: str
    metric: str
    attributes: dict[str, object]


LAUNCHES = (Work("cudaLaunchKernel", "launch", LAUNCH, {"zernel_cuda_api": "runtime"}),)
COPIES_AND_COLLECTIVES = (
    Work("cudaMemcpyAsync", "copy_sync", "zernel.cuda.copy.latency", {}),
    Work("cudaStreamSynchronize", "copy_sync", "zernel.cuda.sync.wait", {}),
    Work("ncclAllReduce", "collective", "zernel.nccl.collective.enqueue.duration", {}),
)
JOBS = {
    "session-launches": (Mode.SESSION, LAUNCHES),
    "session-copies-collectives": (Mode.SESSION, COPIES_AND_COLLECTIVES),
    "multi-launches": (Mode.MULTI, LAUNCHES),
    "perf-launches": (Mode.PERF, LAUNCHES),
}
# By perf links, each start and end of sampling takes seconds.
CASES = [
    *(pytest.param(*job, 3, 0.5, id=name) for name, job in JOBS.items() if job[0] is not Mode.PERF),
    *(pytest.param(*job, 5, 0.2, id=f"{name}-precisely", marks=pytest.mark.soak) for name, job in JOBS.items()),
]


@pytest.mark.parametrize(("mode", "works", "readings_needed", "error"), CASES)
async def test_a_sampled_count_is_close_to_the_true_count(
    mode: Mode,
    decided_at_once: None,
    standin: Standin,
    works: Sequence[Work],
    readings_needed: int,
    error: float,
) -> None:
    """The job has a constant speed, so a part of the time represents all of it. A busy machine makes it vary."""
    require(mode)
    commands = [f"{work.function} count=10 comm=1 times=40" for work in works]
    with standin.start(wrapper=("nice", "-n", "-20")) as program:
        for command in PREPARATIONS:
            program.do(command)
        async with received(0.005, mode) as downstream, paced(program, *commands, "sleep ms=10"):
            for work in works:
                await until(
                    lambda: len(sampled(downstream.batches, program.pid, work.metric)) > readings_needed,  # noqa: B023
                    200,
                )
    readings = [batch for batch in downstream.batches if SHARE in metrics_of(batch)]
    for work in works:
        assert_close(readings, program, work, error)
    driver = sum(calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="driver") for batch in readings)
    assert driver == 0 or works is not LAUNCHES, "driver launches inside runtime launches are not counted"


def assert_close(readings: list[Batch], program: Program, work: Work, error: float) -> None:
    """Between the first and the last reading in which the work is sampled."""
    first, *_, last = (readings.index(batch) for batch in sampled(readings, program.pid, work.metric))
    steady = readings[first + 1 : last + 1]
    here = {"process_pid": program.pid, **work.attributes}
    counted = sum(calls(batch, work.metric, **here) for batch in steady)
    began = program.calls(work.function)["start"] + np.uint64(time.time_ns() - time.monotonic_ns())
    true = int(((period(steady[0])[0] <= began) & (began < period(steady[-1])[1])).sum())
    assert counted == pytest.approx(true, rel=error), work
    assert sum(calls(batch, work.metric, zernel_sampled=True, **here) for batch in steady) == counted
    assert all(doubles(batch, SHARE, zernel_probe_name=work.group)[0] < 1 for batch in steady)


async def test_allocations_are_exact_while_everything_else_is_sampled(
    loadable: None, decided_at_once: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    script = ("cudaLaunchKernel times=200", "cudaMalloc size=100 times=40", "cudaFree times=39")

    def work() -> None:
        for command in script:
            program.do(command)

    with standin.start() as program:
        for command in PREPARATIONS:
            program.do(command)
        async with received(0.001) as downstream, repeating(work, 0.01):
            await until(lambda: len(sampled(downstream.batches, program.pid)) > 2, 60)
            await until(
                lambda: any(max(doubles(batch, "zernel.probe.excess"), default=0) > 0 for batch in downstream.batches)
            )
    for metric, function in (("allocations", "cudaMalloc"), ("frees", "cudaFree")):
        counted = sum(
            sum(numbers(batch, f"zernel.cuda.memory.{metric}", process_pid=program.pid)) for batch in downstream.batches
        )
        assert counted == len(program.calls(function))
    (used,) = numbers(downstream.batches[-1], "zernel.cuda.memory.used", process_pid=program.pid)
    assert used == 100 * (len(program.calls("cudaMalloc")) - len(program.calls("cudaFree")))
    assert caplog.text.count("never sampled") == 1


async def test_a_slow_job_is_not_sampled_and_is_counted_exactly(
    loadable: None, decided_at_once: None, standin: Standin
) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        async with (
            received(0.03) as downstream,
            repeating(lambda: program.do("cudaLaunchKernel times=5"), 0.02),
        ):
            await until(lambda: len(downstream.batches) > 4, 60)
    assert not sampled(downstream.batches, program.pid)
    counted = sum(calls(batch, LAUNCH, process_pid=program.pid) for batch in downstream.batches)
    assert counted == len(program.calls("cudaLaunchKernel"))
