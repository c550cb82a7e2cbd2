"""Every event in the ring buffer is read, or counted as lost."""

import asyncio
import time
from dataclasses import replace

import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, Dropped, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.kernel_structs import EVENT
from otel_zernel_receivers.ebpf.kernel.ring import KEPT
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from otel_zernel_receivers.ebpf.session import Session
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, number_points, numbers, spans_of

RING = (1 << 22) // (EVENT.itemsize + 8)
"""The number of events that fit into the ring buffer."""


@pytest.fixture
def every_wait(loadable: None) -> EbpfConfig:
    return EbpfConfig(long_wait=0.0, max_overhead=0)


def test_events_that_a_full_ring_buffer_loses_are_counted(every_wait: EbpfConfig, standin: Standin) -> None:
    context = make_context(clock=SystemClock())
    with Watch(every_wait, context) as watch, standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do(f"cudaDeviceSynchronize times={2 * RING}")
        batch = watch.read()
    (lost,) = numbers(batch, "zernel.ebpf.lost_events", process_pid=program.pid)
    spans = spans_of(batch, program.pid)
    assert len(spans) + lost == 2 * RING
    assert lost > 0
    (point,) = number_points(batch, "zernel.ebpf.lost_events", {"process_pid": program.pid})
    assert point.start_time_unix_nano >= max(span.end_time_unix_nano for span in spans), "the first events found room"
    assert point.start_time_unix_nano < point.time_unix_nano <= time.time_ns()
    assert isinstance(context.drop, Dropped)
    assert context.drop.counts["ring_full"] >= lost


def test_events_are_read_in_order_when_the_ring_buffer_wraps_around(every_wait: EbpfConfig, standin: Standin) -> None:
    spans = []
    with (
        Watch(every_wait) as watch,
        standin.start(loads=["libcudart.so.12"]) as program,
    ):
        watch.attach()
        for _ in range(5):
            program.do("cudaDeviceSynchronize times=5000")
            spans += spans_of(watch.read(), program.pid)
            watch.taken()
    begins = [span.start_time_unix_nano for span in spans]
    assert len(spans) == 25_000
    assert begins == sorted(begins)


async def test_no_event_is_lost_if_readings_are_rare(loadable: None, standin: Standin) -> None:
    gathered = 0

    class Counting(Session):
        def gather(self) -> bool:
            nonlocal gathered
            gathered += 1
            return super().gather()

    context = make_context(clock=SystemClock())
    config = EbpfConfig.model_validate({"interval": "1h", "long_wait": "0s", "max_overhead": 0})
    receiver = EbpfReceiver(config, context, Counting.open)
    downstream = Downstream()
    with standin.start(loads=["libcudart.so.12"]) as program:
        running = asyncio.create_task(receiver.run(downstream))
        await until(lambda: gathered)
        for _ in range(3):
            before = gathered
            await asyncio.to_thread(program.do, f"cudaDeviceSynchronize times={RING // 2}")
            await until(lambda: gathered > before + 1)  # noqa: B023
        running.cancel()
        await asyncio.wait([running])
    assert isinstance(context.drop, Dropped)
    assert not context.drop.counts
    assert sum(len(spans_of(batch, program.pid)) for batch in downstream.batches) == 3 * (RING // 2)


def test_the_number_of_events_between_readings_is_limited(every_wait: EbpfConfig, standin: Standin) -> None:
    context = make_context(clock=SystemClock())
    with Watch(every_wait, context) as watch, standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        for _ in range(KEPT // RING + 2):
            program.do(f"cudaDeviceSynchronize times={RING}")
            watch.gather()
        program.do(f"cudaDeviceSynchronize times={RING}")
        batch = watch.read()
    (lost,) = numbers(batch, "zernel.ebpf.lost_events", process_pid=program.pid)
    assert 0 < lost <= 2 * RING
    assert len(spans_of(batch, program.pid)) + lost == (KEPT // RING + 3) * RING


def test_no_spans_are_made_without_a_traces_pipeline(every_wait: EbpfConfig, standin: Standin) -> None:
    metrics_only = replace(make_context(clock=SystemClock()), signals=frozenset({"metrics"}))
    with Watch(every_wait, metrics_only) as watch, standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        for _ in range(2):
            program.do(f"cudaDeviceSynchronize times={RING // 2 + 1}")
            batch = watch.read()
            watch.taken()
            assert calls(batch, "zernel.cuda.sync.wait", process_pid=program.pid) == RING // 2 + 1
            assert "traces" not in batch.signals
            assert numbers(batch, "zernel.ebpf.lost_events", process_pid=program.pid) == []


def test_only_long_waits_are_spans(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaDeviceSynchronize")
        program.do("cudaLaunchKernel work=500000")
        program.do("cudaDeviceSynchronize")
        program.do("cudaLaunchKernel work=20000000")
        program.do("cudaStreamSynchronize")
        spans = spans_of(watch.read(), program.pid)
    assert all(span.end_time_unix_nano - span.start_time_unix_nano >= 100_000 for span in spans)
    assert max(span.end_time_unix_nano - span.start_time_unix_nano for span in spans) > 10_000_000
    assert {span.name for span in spans} == {"cudaDeviceSynchronize", "cudaStreamSynchronize"}
    assert {attributes_of(span)["zernel_interval"] for span in spans} == {"sync"}
