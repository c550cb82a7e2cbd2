"""Probes take no more of a CPU than `max_overhead`: above it, the most expensive probes are sampled."""

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

LAUNCH, SHARE = "zernel.cuda.launch.latency", "zernel.probe.sampled"
LIMIT, CALL_NS = 0.03, 1000.0
PREPARATIONS = ("load libcudart.so.12", "load libnccl.so.2", "cudaLaunchKernel", "ncclCommInitRank ranks=2 comm=1")
JOB, OTHER_JOB = WatchedProcess(0, 1, 100), WatchedProcess(1, 1, 101)


def decide(budget: Overhead, others: float = 0.0, **rates: float) -> dict[Group, float]:
    """The shares after one decision about a job. `rates` are ratios of a CPU with all probes on."""
    watched = {group: AVERAGED * budget.shares.get(group, 1.0) for group in Group}
    sampled = {Group(name): rate * watched[Group(name)] * 1e9 / CALL_NS for name, rate in rates.items()}
    hits = [Hits(JOB, sampled, others * AVERAGED * 1e9 / CALL_NS), Hits(OTHER_JOB, {Group.LAUNCH: 1}, 1)]
    budget.add(hits, AVERAGED, watched)
    return budget.shares


def load(shares: dict[Group, float], others: float = 0.0, **rates: float) -> float:
    """The ratio of a CPU that probes take with these shares."""
    return others + sum(rate * shares.get(Group(name), 1.0) for name, rate in rates.items())


ratios = st.floats(0, 0.0099)


@given(st.lists(st.tuples(ratios, ratios, ratios), min_size=1))
def test_a_load_below_the_limit_is_never_sampled(loads: list[tuple[float, float, float]]) -> None:
    budget = Overhead(LIMIT, CALL_NS)
    assert all(decide(budget, others, launch=launch, copy_sync=copy) == {} for launch, copy, others in loads)


@given(st.floats(0.031, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.005))
@example(0.031, 0.0015137900239991977, 0.0015137900239991977, 0.0)
def test_a_sampled_job_is_below_the_limit(launch: float, copy: float, collective: float, others: float) -> None:
    budget, rates = Overhead(LIMIT, CALL_NS), {"launch": launch, "copy_sync": copy, "collective": collective}
    shares = decide(budget, others, **rates)
    assert all(LEAST <= share < 1 for share in shares.values())
    least = dict.fromkeys(Group, LEAST)
    assert load(shares, others, **rates) <= max(LIMIT, load(least, others, **rates)) + 1e-9


def test_only_the_most_expensive_group_is_sampled_if_that_is_enough() -> None:
    assert decide(Overhead(LIMIT, CALL_NS), launch=0.01, copy_sync=0.04) == {
        Group.COPY_SYNC: pytest.approx(0.011 / 0.04)
    }


def test_the_next_group_is_sampled_if_the_most_expensive_is_not_enough() -> None:
    shares = decide(Overhead(LIMIT, CALL_NS), launch=0.2, copy_sync=0.1, collective=0.001)
    assert shares == {Group.LAUNCH: LEAST, Group.COPY_SYNC: pytest.approx((0.7 * LIMIT - 0.2 * LEAST - 0.001) / 0.1)}


def test_a_load_around_the_limit_does_not_flap() -> None:
    budget = Overhead(LIMIT, CALL_NS)
    sampled = [bool(decide(budget, launch=load)) for load in [0.029, 0.031, 0.029, 0.031, 0.028, 0.026] * 3]
    assert sampled == [False] + [True] * 17


def test_sampling_ends_when_the_load_has_been_lower_for_a_while() -> None:
    budget = Overhead(LIMIT, CALL_NS)
    assert decide(budget, launch=0.3) == {Group.LAUNCH: pytest.approx(0.07)}
    assert [bool(decide(budget, launch=0.01)) for _ in range(STEADY)] == [True] * (STEADY - 1) + [False]


def test_a_group_without_a_sample_stays_sampled() -> None:
    budget = Overhead(LIMIT, CALL_NS)
    decide(budget, launch=0.3)
    for _ in range(2 * STEADY):
        budget.add([Hits(JOB, {}, 0)], AVERAGED, {Group.LAUNCH: 0.0})
    assert budget.shares


def test_a_burst_starts_no_sampling() -> None:
    budget = Overhead(LIMIT, CALL_NS)
    budget.add([Hits(JOB, {Group.LAUNCH: 100_000}, 0)], 0.1, {})
    budget.add([Hits(JOB, {}, 0)], AVERAGED, {})
    assert budget.shares == {}


def test_without_a_limit_nothing_is_sampled() -> None:
    assert decide(Overhead(0, CALL_NS), launch=1.0) == {}


def test_without_a_limit_no_memory_is_used_for_processes() -> None:
    budget = Overhead(0, CALL_NS)
    size = len(pickle.dumps(budget))
    for pid in range(100):
        budget.add([Hits(WatchedProcess(0, pid, pid), {Group.LAUNCH: 1}, 1)], 1.0, {})
    assert len(pickle.dumps(budget)) == size


def test_the_excess_is_the_load_that_sampling_cannot_save() -> None:
    budget = Overhead(LIMIT, CALL_NS)
    decide(budget, others=0.05, launch=0.1)
    assert budget.excess == pytest.approx(0.05 + LEAST * 0.1 - LIMIT)
    decide(budget, others=0.01, launch=0.1)
    assert budget.excess == 0


def test_hits_are_divided_among_groups_by_their_calls() -> None:
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


def test_hits_of_operators_are_counted_by_the_kernel() -> None:
    cpu = CpuReading(
        JOB, hits=100, off_cpu_ns=0, io_wait_ns=0, last_burst_ns=0, reads=0, bytes_read=0, operator_hits=70
    )
    assert hits_of([], [cpu]) == [Hits(JOB, {Group.OPERATORS: 70.0}, 30.0)]


def test_operators_are_sampled_last() -> None:
    """A part of the operators is useless, while a part of the launches can be scaled."""
    assert decide(Overhead(LIMIT, CALL_NS), launch=0.014, operators=0.018).keys() == {Group.LAUNCH}
    assert decide(Overhead(LIMIT, CALL_NS), launch=0.01, operators=0.08).keys() == {Group.LAUNCH, Group.OPERATORS}


def test_a_hit_of_an_operator_costs_as_much_as_an_entry() -> None:
    assert decide(Overhead(LIMIT, CALL_NS, CALL_NS / 2), operators=0.05) == {}
    assert decide(Overhead(LIMIT, CALL_NS), operators=0.05).keys() == {Group.OPERATORS}


def test_a_series_without_new_counts_has_no_hits() -> None:
    (hits,) = hits_of([series_of(Operation.RUNTIME_LAUNCH)], [CpuReading(JOB, 50, 0, 0, 0, 0, 0)])
    assert hits == Hits(JOB, {Group.LAUNCH: 0}, 50)


def test_calls_that_change_a_state_are_never_sampled() -> None:
    never = {probe.kind for probe in chain(*PROBES.values()) if group_of(probe) is None}
    operators = {CallKind.OPERATOR, CallKind.LOSS, CallKind.REDUCTION, CallKind.SAMPLE, CallKind.UPDATE}
    assert never == set(CallKind) - {CallKind.CALL, CallKind.COPY, CallKind.WAIT, CallKind.COLLECTIVE} - operators


def series_of(operation: int, *counts: int) -> SeriesReading:
    return SeriesReading(JOB, operation, 0, np.arange(len(counts)), np.array(counts), 700, None, 70)


def test_a_sample_is_scaled_to_all_calls() -> None:
    reading = series_of(Operation.RUNTIME_LAUNCH, *[1] * 7)
    (scaled,) = Coverage(1.0, {}, {Group.LAUNCH: 0.7}, {reading.key: 10.0}).scaled([reading])
    assert scaled.counts.sum() == 10
    assert (scaled.sum_ns, scaled.bytes) == (1000, 100)


def test_calls_at_the_edges_of_a_sample_are_dropped() -> None:
    """While probes are taken off, some launches of the driver seem to be outside of the runtime's."""
    assert Coverage(1.0, {}, {Group.LAUNCH: 0.5}, {}).scaled([series_of(Operation.DRIVER_LAUNCH, 3)]) == []


def test_upper_bounds_of_collectives_are_dropped_while_waits_are_sampled() -> None:
    upper_bound = series_of(Operation.ALL_REDUCE + 8, 3)
    assert Coverage(1.0, {}, {Group.COPY_SYNC: 0.5}).scaled([upper_bound]) == []
    assert Coverage(1.0, {}, {Group.LAUNCH: 0.5}).scaled([upper_bound]) == [upper_bound]


def test_a_waiting_job_keeps_its_speed_and_a_busy_job_is_slowed_by_its_probes() -> None:
    waiting, busy = SpeedRatio(), SpeedRatio()
    watched = Activity(0.1, own={JOB: 0.01}, probes={JOB: 0.02})
    assert waiting.scale(JOB, watched, Activity(1.0, own={JOB: 0.1}, probes={JOB: 0.02})) == pytest.approx(10)
    watched = Activity(0.1, own={JOB: 0.08}, probes={JOB: 0.02})
    assert busy.scale(JOB, watched, Activity(1.0, own={JOB: 0.98}, probes={JOB: 0.02})) == pytest.approx(
        10 * 0.98 / 0.8
    )


def test_impossible_cpu_times_do_not_change_the_speed() -> None:
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
    return [one for one in batches if histogram_points(one, metric, process_pid=pid, zernel_sampled=True)]


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
    with standin.start(capacity=1 << 23) as program:
        program.do("load libcudart.so.12")
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

    def step() -> None:
        for command in ("addmm times=2000", "open Optimizer.step#A", "close"):
            program.do(command)

    with standin.start(capacity=1 << 23) as program:
        program.do("load libtorch_cpu.so")
        async with (
            received(0.01) as downstream,
            repeating(step, 0),
        ):
            await until(lambda: sum(map(lacks_operators, downstream.batches)) >= 4, 30)
    first, *_, last = [number for number, batch in enumerate(downstream.batches) if lacks_operators(batch)]
    assert any(runs_in(batch, program) for batch in downstream.batches[:first])
    assert not any(runs_in(batch, program) for batch in downstream.batches[first : last + 1])
    shares = [doubles(batch, SHARE, zernel_probe_name="operators") for batch in downstream.batches[first : last + 1]]
    assert all(share < 1 for share in chain(*shares))


def runs_in(batch: Batch, program: Program) -> list[object]:
    """The runs of operators of the program."""
    spans = map(attributes_of, spans_of(batch, program.pid))
    return [one for one in spans if one["zernel_interval"] == "operators"]


JOBS = [
    ("launch", LAUNCH, "cudaLaunchKernel", {"zernel_cuda_api": "runtime"}),
    ("copy_sync", "zernel.cuda.copy.latency", "cudaMemcpyAsync", {}),
    ("copy_sync", "zernel.cuda.sync.wait", "cudaStreamSynchronize", {}),
    ("collective", "zernel.nccl.collective.enqueue.duration", "ncclAllReduce", {}),
]
MODES = [(Mode.SESSION, *job) for job in JOBS] + [(mode, *JOBS[0]) for mode in (Mode.MULTI, Mode.PERF)]


@pytest.mark.parametrize(
    ("mode", "group", "metric", "function", "attributes"), MODES, ids=[f"{job[0]}-{job[3]}" for job in MODES]
)
async def test_a_sampled_count_is_close_to_the_true_count(
    mode: Mode,
    decided_at_once: None,
    standin: Standin,
    group: str,
    metric: str,
    function: str,
    attributes: dict[str, object],
) -> None:
    """The job has a constant speed, so a part of the time represents all of it. The machine varies a little."""
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
    counted = sum(calls(batch, metric, process_pid=program.pid, **attributes) for batch in steady)
    began = program.calls(function)["start"] + np.uint64(time.time_ns() - time.monotonic_ns())
    true = int(((period(steady[0])[0] <= began) & (began < period(steady[-1])[1])).sum())
    assert counted == pytest.approx(true, rel=0.2)
    marked = sum(calls(batch, metric, process_pid=program.pid, zernel_sampled=True, **attributes) for batch in steady)
    assert marked == counted
    assert all(doubles(batch, SHARE, zernel_probe_name=group)[0] < 1 for batch in steady)
    driver = sum(calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="driver") for batch in steady)
    assert driver == 0 or group == "collective", "driver launches inside runtime launches are not counted"


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
            await until(lambda: len(sampled(downstream.batches, program.pid)) > 2, 30)
            await until(
                lambda: any(max(doubles(one, "zernel.probe.excess"), default=0) > 0 for one in downstream.batches)
            )
    for metric, function in (("allocations", "cudaMalloc"), ("frees", "cudaFree")):
        counted = sum(
            sum(numbers(one, f"zernel.cuda.memory.{metric}", process_pid=program.pid)) for one in downstream.batches
        )
        assert counted == len(program.calls(function))
    (used,) = numbers(downstream.batches[-1], "zernel.cuda.memory.used", process_pid=program.pid)
    assert used == 100 * (len(program.calls("cudaMalloc")) - len(program.calls("cudaFree")))
    assert caplog.text.count("never sampled") == 1


async def test_a_slow_job_is_not_sampled_and_is_counted_exactly(
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
    counted = sum(calls(batch, LAUNCH, process_pid=program.pid) for batch in downstream.batches)
    assert counted == len(program.calls("cudaLaunchKernel"))
