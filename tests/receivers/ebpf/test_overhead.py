"""Probes take no more of a CPU than they may: beyond that, launches are sampled."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, FakeClock, make_context, until
from otel_zernel_receivers.ebpf import overhead
from otel_zernel_receivers.ebpf.attaching import Mode
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.overhead import AVERAGED, LEAST, STEADY, Hits, Overhead
from otel_zernel_receivers.ebpf.probes import Operation
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.rows import CpuReading, Process
from otel_zernel_receivers.ebpf.sampling import Sampling, Watched
from otel_zernel_receivers.ebpf.series import SeriesReading
from otel_zernel_receivers.ebpf.tables import Readings
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import calls, doubles, histogram_points, metrics_of

LAUNCH = "zernel.cuda.launch.latency"
LIMIT, CALL_NS = 0.03, 1000.0
JOB, OTHER_JOB = Process(0, 1, 100), Process(1, 1, 101)


def decide(what: Overhead, launches: float, others: float = 0.0) -> float:
    """The share after one decision about a job whose hits would take these ratios of a CPU if all were watched."""
    hits = [
        Hits(JOB, round(launches * AVERAGED * what.share * 1e9 / CALL_NS), round(others * AVERAGED * 1e9 / CALL_NS)),
        Hits(OTHER_JOB, 1, 1),
    ]
    what.add(hits, AVERAGED, AVERAGED * what.share)
    return what.share


@given(st.lists(st.floats(0, 0.029), min_size=1), st.floats(0, 1))
def test_what_stays_under_the_limit_is_never_sampled(loads: list[float], part: float) -> None:
    what = Overhead(LIMIT, CALL_NS)
    assert {decide(what, load * part, load * (1 - part)) for load in loads} == {1.0}


@given(st.floats(0.031, 1), st.floats(0, 0.005))
def test_a_sampled_job_is_under_the_limit(launches: float, others: float) -> None:
    what = Overhead(LIMIT, CALL_NS)
    share = decide(what, launches, others)
    assert LEAST <= share < 1
    assert share == LEAST or share * launches + others < LIMIT


def test_a_load_about_the_limit_does_not_flap() -> None:
    what = Overhead(LIMIT, CALL_NS)
    sampled = [decide(what, load) < 1 for load in [0.029, 0.031, 0.029, 0.031, 0.028, 0.026] * 3]
    assert sampled == [False] + [True] * 17


def test_sampling_ends_when_the_load_has_been_lower_for_a_while() -> None:
    what = Overhead(LIMIT, CALL_NS)
    assert decide(what, 0.3) == pytest.approx(0.07)
    assert [decide(what, 0.01) < 1 for _ in range(STEADY)] == [True] * (STEADY - 1) + [False]


def test_a_burst_is_no_load() -> None:
    what = Overhead(LIMIT, CALL_NS)
    what.add([Hits(JOB, 100_000, 0)], 0.1, 0.1)
    what.add([Hits(JOB, 0, 0)], AVERAGED, AVERAGED)
    assert what.share == 1


def test_no_limit_is_no_sampling() -> None:
    assert decide(Overhead(0, CALL_NS), 1.0) == 1


def test_a_sample_is_scaled_by_the_time_watched() -> None:
    counts = np.array([3, 4])
    reading = SeriesReading(JOB, Operation.RUNTIME_LAUNCH, 0, np.array([5, 9]), counts, 700, None, 0)
    scaled = Watched(0.2, 1.0).scaled(reading)
    assert scaled.counts.tolist() == [15, 20]
    assert scaled.sum_ns == 3500


class NoAttachments:
    """There is nothing to switch."""

    def switch_on(self) -> None:
        raise AssertionError

    switch_off = switch_on


@pytest.mark.parametrize("slow", [Mode.MULTI, Mode.PERF])
def test_probes_that_are_slow_to_switch_are_left_on(slow: Mode, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    sampling = Sampling(Overhead(LIMIT, CALL_NS), NoAttachments(), slow, make_context(clock=clock))
    clock.advance(AVERAGED)
    cpu = [CpuReading(JOB, 10_000_000, 0, 0, 0, 0, 0)]
    launches = SeriesReading(JOB, Operation.DRIVER_LAUNCH, 0, np.array([0]), np.array([10_000_000]), 0, None, 0)
    sampling.learn(Readings([launches], [], cpu, [], {}, {}, np.empty(0)), sampling.take())
    assert "too slow" in caplog.text
    assert not sampling.is_on
    assert sampling.switches(1.0) == []


@pytest.fixture
def decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overhead, "AVERAGED", 1.0)


@contextlib.asynccontextmanager
async def received(max_overhead: float) -> AsyncIterator[Downstream]:
    config = EbpfConfig.model_validate({"interval": "500ms", "max_overhead": max_overhead})
    receiver, downstream = EbpfReceiver(config, make_context(clock=SystemClock())), Downstream()
    running = asyncio.create_task(receiver.run(downstream))
    try:
        await until(lambda: len(downstream.batches) > 0)
        yield downstream
    finally:
        running.cancel()
        await asyncio.wait([running])


@contextlib.asynccontextmanager
async def repeating(work: Callable[[], None], every: float) -> AsyncIterator[None]:
    """Does the work in a thread, again and again."""
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


def sampled(batches: list[Batch], pid: int) -> list[Batch]:
    """Those of which launches are marked as sampled."""
    return [one for one in batches if histogram_points(one, LAUNCH, process_pid=pid, zernel_sampled=True)]


def taken(batches: list[Batch], pid: int) -> float:
    """The ratio of a CPU that probes took of a process, as they tell themselves."""
    if not batches:
        return 0.0
    spent = sum(sum(doubles(batch, "zernel.probe.time", process_pid=pid)) for batch in batches)
    return spent / (sum(end - start for start, end in map(period, batches)) / 1e9)


def period(batch: Batch) -> tuple[int, int]:
    """The time that a batch is of, ns since 1970."""
    (point,) = metrics_of(batch)["zernel.probe.floor"].gauge.data_points
    return point.start_time_unix_nano, point.time_unix_nano


async def test_a_job_at_full_speed_is_sampled_until_probes_take_less_than_the_limit(
    loadable: None, decided_at_once: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    with standin.start(capacity=1 << 23) as program:
        program.do("load libcudart.so.12")
        program.do("cudaLaunchKernel")  # loads libcuda
        async with (
            received(0.1) as downstream,
            repeating(lambda: program.do("cudaLaunchKernel times=1000"), 0),
        ):
            await until(lambda: 0 < taken(sampled(downstream.batches, program.pid)[1:][-2:], program.pid) < 0.1, 30)
    steady = sampled(downstream.batches, program.pid)[1:]
    assert all(0 < share < 1 for batch in steady for share in doubles(batch, "zernel.probe.sampled"))
    assert caplog.text.count("launches are now watched for a part") == 1


async def test_a_sampled_count_is_near_the_true_one(loadable: None, decided_at_once: None, standin: Standin) -> None:
    """Sampled are windows of 0.1 s and more in which the pace is the same, hence the error is that of their length."""
    with standin.start() as program:
        program.do("load libcudart.so.12")
        program.do("cudaLaunchKernel")
        async with (
            received(0.005) as downstream,
            repeating(lambda: program.do("cudaLaunchKernel times=40"), 0.01),
        ):
            await until(lambda: len(sampled(downstream.batches, program.pid)) > 4, 30)
    steady = sampled(downstream.batches, program.pid)[1:5]
    seen = sum(calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") for batch in steady)
    began = program.calls("cudaLaunchKernel")["start"] + np.uint64(time.time_ns() - time.monotonic_ns())
    true = sum(int(((start <= began) & (began < end)).sum()) for start, end in map(period, steady))
    assert seen == pytest.approx(true, rel=0.2)
    amiss = sum(calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="driver") for batch in steady)
    assert amiss <= 0.05 * true, "the driver's launches in the runtime's, while probes were taken off"


async def test_a_slow_job_is_never_sampled_and_counted_exactly(
    loadable: None, decided_at_once: None, standin: Standin
) -> None:
    with standin.start() as program:
        program.do("load libcudart.so.12")
        async with (
            received(0.03) as downstream,
            repeating(lambda: program.do("cudaLaunchKernel times=5"), 0.02),
        ):
            await until(lambda: len(downstream.batches) > 4, 30)
    assert not sampled(downstream.batches, program.pid)
    seen = sum(calls(batch, LAUNCH, process_pid=program.pid) for batch in downstream.batches)
    assert seen == len(program.calls("cudaLaunchKernel"))
