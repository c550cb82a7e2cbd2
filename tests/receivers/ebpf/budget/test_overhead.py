"""Probes take no more of a CPU than they may: beyond that, the hottest are sampled."""

import asyncio
import contextlib
import pickle
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from itertools import chain

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.budget import overhead
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.budget.overhead import AVERAGED, LEAST, STEADY, Group, Hits, Overhead, group_of, hits_of
from otel_zernel_receivers.ebpf.budget.scaling import Activity, SpeedRatio
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes import loading
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.calls import CallKind, Operation
from otel_zernel_receivers.ebpf.probes.libraries import PROBES
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import Session
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import calls, doubles, histogram_points, metrics_of, numbers, require

LAUNCH, SHARE = "zernel.cuda.launch.latency", "zernel.probe.sampled"
LIMIT, CALL_NS = 0.03, 1000.0
PREPARATIONS = ("load libcudart.so.12", "load libnccl.so.2", "cudaLaunchKernel", "ncclCommInitRank ranks=2 comm=1")
JOB, OTHER_JOB = WatchedProcess(0, 1, 100), WatchedProcess(1, 1, 101)


def decide(what: Overhead, others: float = 0.0, **rates: float) -> dict[Group, float]:
    """The shares after one decision about a job whose probes would take these ratios of a CPU if all were on."""
    watched = {group: AVERAGED * what.shares.get(group, 1.0) for group in Group}
    sampled = {Group(name): rate * watched[Group(name)] * 1e9 / CALL_NS for name, rate in rates.items()}
    hits = [Hits(JOB, sampled, others * AVERAGED * 1e9 / CALL_NS), Hits(OTHER_JOB, {Group.LAUNCH: 1}, 1)]
    what.add(hits, AVERAGED, watched)
    return what.shares


def load(shares: dict[Group, float], others: float = 0.0, **rates: float) -> float:
    """What probes take of a CPU with these shares."""
    return others + sum(rate * shares.get(Group(name), 1.0) for name, rate in rates.items())


ratios = st.floats(0, 0.0099)


@given(st.lists(st.tuples(ratios, ratios, ratios), min_size=1))
def test_what_stays_under_the_limit_is_never_sampled(loads: list[tuple[float, float, float]]) -> None:
    what = Overhead(LIMIT, CALL_NS)
    assert all(decide(what, others, launch=launch, copy_sync=copy) == {} for launch, copy, others in loads)


@given(st.floats(0.031, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.005))
@example(0.031, 0.0015137900239991977, 0.0015137900239991977, 0.0)
def test_a_sampled_job_is_under_the_limit(launch: float, copy: float, collective: float, others: float) -> None:
    what, rates = Overhead(LIMIT, CALL_NS), {"launch": launch, "copy_sync": copy, "collective": collective}
    shares = decide(what, others, **rates)
    assert all(LEAST <= share < 1 for share in shares.values())
    least = dict.fromkeys(Group, LEAST)
    assert load(shares, others, **rates) <= max(LIMIT, load(least, others, **rates)) + 1e-9


def test_the_hottest_group_alone_is_sampled_where_that_is_enough() -> None:
    assert decide(Overhead(LIMIT, CALL_NS), launch=0.01, copy_sync=0.04) == {
        Group.COPY_SYNC: pytest.approx(0.011 / 0.04)
    }


def test_the_next_group_is_sampled_where_the_hottest_is_not_enough() -> None:
    shares = decide(Overhead(LIMIT, CALL_NS), launch=0.2, copy_sync=0.1, collective=0.001)
    assert shares == {Group.LAUNCH: LEAST, Group.COPY_SYNC: pytest.approx((0.7 * LIMIT - 0.2 * LEAST - 0.001) / 0.1)}


def test_a_load_about_the_limit_does_not_flap() -> None:
    what = Overhead(LIMIT, CALL_NS)
    sampled = [bool(decide(what, launch=load)) for load in [0.029, 0.031, 0.029, 0.031, 0.028, 0.026] * 3]
    assert sampled == [False] + [True] * 17


def test_sampling_ends_when_the_load_has_been_lower_for_a_while() -> None:
    what = Overhead(LIMIT, CALL_NS)
    assert decide(what, launch=0.3) == {Group.LAUNCH: pytest.approx(0.07)}
    assert [bool(decide(what, launch=0.01)) for _ in range(STEADY)] == [True] * (STEADY - 1) + [False]


def test_a_group_that_was_not_watched_at_all_stays_sampled() -> None:
    what = Overhead(LIMIT, CALL_NS)
    decide(what, launch=0.3)
    for _ in range(2 * STEADY):
        what.add([Hits(JOB, {}, 0)], AVERAGED, {Group.LAUNCH: 0.0})
    assert what.shares


def test_a_burst_is_no_load() -> None:
    what = Overhead(LIMIT, CALL_NS)
    what.add([Hits(JOB, {Group.LAUNCH: 100_000}, 0)], 0.1, {})
    what.add([Hits(JOB, {}, 0)], AVERAGED, {})
    assert what.shares == {}


def test_no_limit_is_no_sampling() -> None:
    assert decide(Overhead(0, CALL_NS), launch=1.0) == {}


def test_without_a_limit_nothing_is_kept_of_processes() -> None:
    what = Overhead(0, CALL_NS)
    size = len(pickle.dumps(what))
    for pid in range(100):
        what.add([Hits(WatchedProcess(0, pid, pid), {Group.LAUNCH: 1}, 1)], 1.0, {})
    assert len(pickle.dumps(what)) == size


def test_what_no_sampling_can_take_back_is_told() -> None:
    what = Overhead(LIMIT, CALL_NS)
    decide(what, others=0.05, launch=0.1)
    assert what.excess == pytest.approx(0.05 + LEAST * 0.1 - LIMIT)
    decide(what, others=0.01, launch=0.1)
    assert what.excess == 0


def test_hits_are_told_by_group_as_far_as_they_are_counted() -> None:
    series = [
        series_of(Operation.RUNTIME_LAUNCH, 10),
        series_of(Operation.DRIVER_LAUNCH, 5),
        series_of(Operation.SYNC, 4),
    ]
    series.append(series_of(Operation.ALL_REDUCE, 3))
    (hits,) = hits_of(series, [CpuReading(JOB, 50, 0, 0, 0, 0, 0)])
    assert hits == Hits(JOB, {Group.LAUNCH: 25, Group.COPY_SYNC: 8, Group.COLLECTIVE: 3}, 14)
    (fewer,) = hits_of(series, [CpuReading(JOB, 18, 0, 0, 0, 0, 0)])
    assert fewer.others == 0
    assert fewer.sampled[Group.LAUNCH] == 12.5


def test_a_series_that_moved_without_a_new_count_has_no_hits() -> None:
    (hits,) = hits_of([series_of(Operation.RUNTIME_LAUNCH)], [CpuReading(JOB, 50, 0, 0, 0, 0, 0)])
    assert hits == Hits(JOB, {Group.LAUNCH: 0}, 50)


def test_what_makes_a_state_is_never_sampled() -> None:
    never = {probe.kind for probe in chain(*PROBES.values()) if group_of(probe) is None}
    assert never == set(CallKind) - {CallKind.CALL, CallKind.COPY, CallKind.WAIT, CallKind.COLLECTIVE}


def series_of(operation: int, *counts: int) -> SeriesReading:
    return SeriesReading(JOB, operation, 0, np.arange(len(counts)), np.array(counts), 700, None, 70)


def test_a_sample_is_scaled_to_what_all_calls_would_have_counted() -> None:
    reading = series_of(Operation.RUNTIME_LAUNCH, *[1] * 7)
    (scaled,) = Coverage(1.0, {}, {Group.LAUNCH: 0.7}, {reading.key: 10.0}).scaled([reading])
    assert scaled.counts.sum() == 10
    assert (scaled.sum_ns, scaled.bytes) == (1000, 100)


def test_calls_at_the_edges_of_a_window_are_left_out() -> None:
    """As probes are taken off, some of the driver's launches seem not to be inside of the runtime's."""
    assert Coverage(1.0, {}, {Group.LAUNCH: 0.5}, {}).scaled([series_of(Operation.DRIVER_LAUNCH, 3)]) == []


def test_the_end_of_collectives_is_not_told_where_waits_are_sampled() -> None:
    upper_bound = series_of(Operation.ALL_REDUCE + 8, 3)
    assert Coverage(1.0, {}, {Group.COPY_SYNC: 0.5}).scaled([upper_bound]) == []
    assert Coverage(1.0, {}, {Group.LAUNCH: 0.5}).scaled([upper_bound]) == [upper_bound]


def test_a_job_that_waits_keeps_its_pace_and_one_that_does_not_is_slowed_by_its_probes() -> None:
    waiting, busy = SpeedRatio(), SpeedRatio()
    watched = Activity(0.1, own={JOB: 0.01}, probes={JOB: 0.02})
    assert waiting.scale(JOB, watched, Activity(1.0, own={JOB: 0.1}, probes={JOB: 0.02})) == pytest.approx(10)
    watched = Activity(0.1, own={JOB: 0.08}, probes={JOB: 0.02})
    assert busy.scale(JOB, watched, Activity(1.0, own={JOB: 0.98}, probes={JOB: 0.02})) == pytest.approx(
        10 * 0.98 / 0.8
    )


def test_an_own_time_that_cannot_be_is_no_pace() -> None:
    watched = Activity(0.1, own={JOB: 0.01}, probes={JOB: 0.02})
    assert SpeedRatio().scale(JOB, watched, Activity(1.0, own={JOB: 0.9}, probes={JOB: 0.02})) == pytest.approx(12.5)
    assert SpeedRatio().scale(JOB, watched, Activity(1.0, own={JOB: 0.01}, probes={JOB: 0.02})) == pytest.approx(10)
    assert SpeedRatio().scale(JOB, Activity(0.1), Activity(1.0)) == pytest.approx(10)


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


@contextlib.asynccontextmanager
async def paced(program: Program, *commands: str) -> AsyncIterator[None]:
    """Has the program execute the commands again and again, without having to wait for us; then kills it."""

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
    """Those in which the metric is marked as sampled."""
    return [one for one in batches if histogram_points(one, metric, process_pid=pid, zernel_sampled=True)]


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
    assert all(0 < share < 1 for batch in steady for share in doubles(batch, SHARE, zernel_probe_name="launch"))
    assert caplog.text.count("Sampled from here on: launches") == 1


JOBS = [
    ("launch", LAUNCH, "cudaLaunchKernel", {"zernel_cuda_api": "runtime"}),
    ("copy_sync", "zernel.cuda.copy.latency", "cudaMemcpyAsync", {}),
    ("copy_sync", "zernel.cuda.sync.wait", "cudaStreamSynchronize", {}),
    ("collective", "zernel.nccl.collective.duration", "ncclAllReduce", {"zernel_timing_source": "host_enqueue"}),
]
MODES = [(Mode.SESSION, *job) for job in JOBS] + [(mode, *JOBS[0]) for mode in (Mode.MULTI, Mode.PERF)]


@pytest.mark.parametrize(
    ("mode", "group", "metric", "function", "attributes"), MODES, ids=[f"{job[0]}-{job[3]}" for job in MODES]
)
async def test_a_sampled_count_is_near_the_true_one(
    mode: Mode,
    decided_at_once: None,
    standin: Standin,
    group: str,
    metric: str,
    function: str,
    attributes: dict[str, object],
) -> None:
    """Part of the time stands for all of it, in which the job has the same pace but for the machine's own moods."""
    require(mode)
    with standin.start(wrapper=("nice", "-n", "-20")) as program:
        for command in PREPARATIONS:
            program.do(command)
        async with (
            received(0.005, mode) as downstream,
            paced(program, f"{function} count=10 comm=1 times=40", "sleep ms=10"),
        ):
            await until(lambda: len(sampled(downstream.batches, program.pid, metric)) > 5, 90)
    readings = [batch for batch in downstream.batches if SHARE in metrics_of(batch)]
    first, *_, last = (readings.index(batch) for batch in sampled(readings, program.pid, metric))
    steady = readings[first + 1 : last + 1]
    seen = sum(calls(batch, metric, process_pid=program.pid, **attributes) for batch in steady)
    began = program.calls(function)["start"] + np.uint64(time.time_ns() - time.monotonic_ns())
    true = int(((period(steady[0])[0] <= began) & (began < period(steady[-1])[1])).sum())
    assert seen == pytest.approx(true, rel=0.2)
    marked = sum(calls(batch, metric, process_pid=program.pid, zernel_sampled=True, **attributes) for batch in steady)
    assert marked == seen
    assert all(doubles(batch, SHARE, zernel_probe_name=group)[0] < 1 for batch in steady)
    driver = sum(calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="driver") for batch in steady)
    assert driver == 0 or group == "collective", (
        "launches that the runtime makes of the driver are not the program's own"
    )


async def test_allocations_are_exact_where_everything_else_is_sampled(
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
            await until(lambda: len(sampled(downstream.batches, program.pid)) > 2, 30)
            await until(
                lambda: any(max(doubles(one, "zernel.probe.excess"), default=0) > 0 for one in downstream.batches)
            )
    for metric, function in (("allocations", "cudaMalloc"), ("frees", "cudaFree")):
        seen = sum(
            sum(numbers(one, f"zernel.gpu.memory.{metric}", process_pid=program.pid)) for one in downstream.batches
        )
        assert seen == len(program.calls(function))
    (used,) = numbers(downstream.batches[-1], "zernel.gpu.memory.used", process_pid=program.pid)
    assert used == 100 * (len(program.calls("cudaMalloc")) - len(program.calls("cudaFree")))
    assert caplog.text.count("never sampled") == 1


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
