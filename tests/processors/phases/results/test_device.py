"""What the GPU of a process did, by the snapshots of its training thread."""

from functools import cache

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel_libraries.training.interval_spans import OperatorsSpan, ThreadSpan
from otel_zernel_libraries.training.ledger import MOMENTS, Activity, Position, unpacked_snapshots
from otel_zernel_processors.phases.results.device import DeviceTimes
from tests.processors.phases.processing import run
from tests.processors.phases.scopes.counted_thread import CountedThread
from tests.processors.phases.training import MS, START, batch_of, values_of

STEPS = 400
STEP = 0.04
"""Seconds of a step."""


@cache
def trained(*, launches: int = 100, sync: str = "cudaStreamSynchronize", blocked: float = 0) -> CountedThread:
    """Each step reads a file for 8 ms, launches kernels for 12 ms, and waits 20 ms for the device, or sleeps so long.

    Threads of autograd launch the kernels of the backward pass, unless launches of the optimizer are `blocked` (ms).
    """
    thread = CountedThread()
    for _ in range(STEPS):
        thread.scope("data_loading", 0.001, {Activity.FILE: 8})
        backward = launches if blocked else launches // 100
        for kind, lasts, count in (
            ("forward", 5, launches),
            ("backward", 5, backward),
            ("optimizer", 2, launches // 10),
        ):
            begin = thread.snapshot
            edge = {"first_launch": begin.time, "last_launch": begin.time + lasts * MS} if count else {}
            waits: dict[str, float] = {Activity.LAUNCH_BLOCKED: blocked if kind == "optimizer" else 0}
            thread.spend(lasts, waits, operators=9, launches=count, **edge)
            thread.add(kind, begin)
        begin = thread.snapshot
        if sync:
            thread.spend(0.001, {Activity.GPU_WAIT: 20})
        else:
            thread.spend(0.001, {Activity.TIMER: 20})
        if sync:
            thread.add("sync", begin, name=sync)
    return thread


def spans_of_thread(thread: CountedThread) -> list[Span]:
    """Its spans, as a receiver sends them."""
    spans = []
    for interval in thread.intervals:
        times, snapshots = (interval.start, interval.end), unpacked_snapshots([interval.snapshots])
        spans.append(
            OperatorsSpan(1, *times, 9, "model", "operator", True, snapshots=snapshots).to_span()
            if interval.kind == "forward"
            else ThreadSpan(interval.kind, interval.name, 1, *times, snapshots=snapshots).to_span()
        )
    return spans


def use_of(thread: CountedThread, readings: float | None = None) -> DeviceTimes:
    """`readings`: the idle part of each second, by the driver."""
    device = DeviceTimes()
    for step in thread.closed():
        device.add_step(step)
    for second in range(60 if readings is not None else 0):
        start = START + second * 1000 * MS
        device.add_reading(start, start + 1000 * MS, readings or 0.0)
    device.is_over = True
    device.close()
    return device


def test_a_gpu_starves_while_data_loads_after_a_wait() -> None:
    device = use_of(trained())
    loading = device.starved_s[MOMENTS[Position.LOAD][Activity.FILE]]
    assert loading == pytest.approx(STEPS * 0.008, rel=0.05)
    assert device.busy_s > 0.49 * STEPS * STEP
    assert not any(moment.activity is Activity.GPU_WAIT for moment in device.starved_s)
    total = device.starved_s.total() + device.busy_s + device.undetermined_s
    assert total == pytest.approx(STEPS * STEP, rel=0.01)


def test_a_wait_for_an_event_does_not_empty_the_stream() -> None:
    device = use_of(trained(sync="cudaEventSynchronize"))
    assert device.starved_s.total() < 0.1 * STEPS * STEP


def test_a_wait_for_another_stream_does_not_empty_the_one_of_the_kernels() -> None:
    """The driver reports that the device never pauses."""
    device = use_of(trained(), readings=0.0)
    assert device.starved_s.total() < 0.03 * STEPS * STEP


def test_launches_that_are_blocked_after_a_few_others_show_that_the_wait_was_for_another_stream() -> None:
    device = use_of(trained(blocked=10))
    assert device.starved_s.total() < 0.03 * STEPS * STEP


def test_without_waits_the_use_is_undetermined_until_the_driver_knows_it() -> None:
    thread = trained(sync="")
    assert use_of(thread).undetermined_s > 0.5 * STEPS * STEP
    device = use_of(thread, readings=0.6)
    assert device.undetermined_s < 0.2 * STEPS * STEP
    assert 0.4 * STEPS * STEP < device.starved_s.total() < 0.62 * STEPS * STEP


def test_a_busy_driver_bounds_the_time_of_ranks_that_wait_for_each_other() -> None:
    """A kernel of NCCL runs while it waits: the driver says when no kernel ran, and not how long the launches took."""
    thread = CountedThread()
    for _ in range(STEPS):
        begin = thread.snapshot
        edge = {"first_launch": begin.time, "last_launch": begin.time + 20 * MS}
        thread.spend(20, {}, operators=9, launches=100, **edge)
        thread.add("forward", begin)
        begin = thread.snapshot
        thread.spend(0.001, {Activity.COLLECTIVE: 20})
        thread.add("ddp", begin, name="c10d::Reducer::finalize_backward")
    unknown, known = use_of(thread), use_of(thread, readings=0.03)
    assert unknown.busy_s < 0.6 * STEPS * STEP
    assert known.busy_s == pytest.approx(0.95 * STEPS * STEP, rel=0.02)
    assert known.starved_s.total() <= 0.05 * STEPS * STEP


def test_readings_count_only_within_the_time_that_they_cover() -> None:
    thread = trained(sync="")
    device = DeviceTimes()
    for step in thread.closed()[:60]:
        device.add_step(step)
    device.add_reading(START - 1900 * MS, START + 100 * MS, 0.0)
    device.is_over = True
    device.close()
    assert device.busy_s < 0.1


def test_a_hole_in_the_snapshots_is_undetermined_and_does_not_end_the_window() -> None:
    whole = use_of(trained())
    intervals = [
        interval._replace(snapshots=b"") if interval.kind == "data_loading" and at % 50 < 5 else interval
        for at, interval in enumerate(trained().intervals)
    ]
    device = use_of(CountedThread(intervals=intervals))
    assert 0.7 * whole.starved_s.total() < device.starved_s.total() <= whole.starved_s.total()
    assert device.busy_s == pytest.approx(whole.busy_s, rel=0.1)


def test_the_next_thread_counts_once_the_first_one_has_ended() -> None:
    steps = trained().closed()
    device = DeviceTimes()
    for step in steps:
        step.step.thread = 1 if step.step.start < START + 2000 * MS else 2
        device.add_step(step)
    device.is_over = True
    device.close()
    assert device.busy_s == pytest.approx(0.5 * (2 + (STEPS * STEP - 12)), rel=0.1)


def test_the_use_of_a_gpu_is_known_after_two_seconds() -> None:
    device = DeviceTimes()
    for number, step in enumerate(trained().closed()):
        device.add_step(step)
        device.close()
        if device.solved[0]:
            assert number * STEP == pytest.approx(2, abs=2 * STEP)
            return
    pytest.fail("the device was never solved")


def test_a_thread_that_launches_nothing_has_no_gpu() -> None:
    device = use_of(trained(launches=0, sync=""))
    assert not device.is_known
    assert device.busy_s == device.undetermined_s == device.starved_s.total() == 0


@pytest.mark.parametrize("launches", [100, 0])
def test_the_use_of_a_gpu_is_reported_by_position_and_activity(launches: int) -> None:
    thread = trained(launches=launches, sync="cudaStreamSynchronize" if launches else "")
    made = run(batch_of(spans_of_thread(thread)))
    names = "zernel.gpu.starved.time", "zernel.gpu.busy.time", "zernel.gpu.undetermined.time"
    starved, busy, undetermined = (values_of(made, name) for name in names)
    if launches:
        loading = [value for at, value in starved if (at["zernel.position"], at["zernel.activity"]) == ("load", "file")]
        assert loading[-1] == pytest.approx(STEPS * 0.008, rel=0.1)
        assert busy[-1][1] > 0.45 * STEPS * STEP
        assert undetermined
    else:
        assert [*starved, *busy, *undetermined] == []
