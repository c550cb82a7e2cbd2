"""Kernel launches of a running program, counted in the kernel."""

import asyncio
import logging

import numpy as np
import pytest

from otel_zernel.clock import SystemClock
from otel_zernel.testing import Downstream, make_context, until
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit.metrics import SERIES_PER_BATCH
from otel_zernel_receivers.ebpf.receiver import EbpfReceiver
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import Watch, attributes_of, calls, doubles, histogram_points, metrics_of, numbers

LAUNCH = "zernel.cuda.launch.latency"


def test_every_launch_of_every_thread_is_counted(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=2000 threads=8")
        batch = watch.read()
    assert calls(batch, LAUNCH, process_pid=program.pid, zernel_cuda_api="runtime") == 16_000


def test_a_point_is_a_delta_with_the_bounds_of_an_hdr_histogram(watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do("cudaLaunchKernel times=1000")
        first = watch.read()
        watch.taken()
        program.do("cudaLaunchKernel times=500")
        second = watch.read()
    (before,) = histogram_points(first, LAUNCH, process_pid=program.pid)
    (point,) = histogram_points(second, LAUNCH, process_pid=program.pid)
    assert metrics_of(second)[LAUNCH].unit == "s"
    assert point.start_time_unix_nano == before.time_unix_nano < point.time_unix_nano
    assert point.count == sum(point.bucket_counts) == 500
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    assert (np.diff(point.explicit_bounds) > 0).all()
    assert attributes_of(point)["zernel_phase"] == "unknown"


def test_three_significant_figures_are_kept_if_configured(loadable: None, standin: Standin) -> None:
    config = EbpfConfig(significant_figures=3)
    with (
        Watch(config) as watch,
        standin.start(loads=["libcudart.so.12"]) as program,
    ):
        watch.attach()
        program.do("cudaLaunchKernel times=1000 threads=2")
        (point,) = histogram_points(watch.read(), LAUNCH, process_pid=program.pid)
    bounds = np.array(point.explicit_bounds)
    counted = np.flatnonzero(point.bucket_counts[1:-1])  # buckets with a bound on both sides
    widths = bounds[counted + 1] - bounds[counted]
    assert point.count == 2000
    assert (widths < np.maximum(1.5e-9, bounds[counted + 1] / 1000)).all()


async def test_a_receiver_emits_what_a_running_program_does(
    loadable: None, standin: Standin, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "otel_zernel")
    config = EbpfConfig.model_validate({"interval": "20ms", "rescan_interval": "20ms"})
    receiver = EbpfReceiver(config, make_context(clock=SystemClock()))
    downstream = Downstream(refuse=3)
    with standin.start(loads=["libcudart.so.12"]) as program:
        running = asyncio.create_task(receiver.run(downstream))
        await until(lambda: str(standin.cudart) in caplog.text)
        program.do("cudaLaunchKernel times=300")
        await until(lambda: downstream.batches)
        program.do("cudaLaunchKernel times=200")
        running.cancel()
        await asyncio.wait([running])
    assert sum(calls(batch, LAUNCH, process_pid=program.pid) for batch in downstream.batches) == 500


def test_a_large_reading_comes_in_small_batches(watch: Watch, standin: Standin) -> None:
    forks = 2 * SERIES_PER_BATCH + 10
    with standin.start(loads=["libcudart.so.12"]) as program:
        watch.attach()
        program.do(f"cudaLaunchKernel times=3 forks={forks}")
        batches = watch.session.read().batches
    series = [histogram_points(batch, LAUNCH) for batch in batches]
    assert max(map(len, series)) <= SERIES_PER_BATCH
    assert sum(calls(batch, LAUNCH) for batch in batches) == 3 * forks


def test_the_cost_of_probes_is_emitted(fresh_watch: Watch, standin: Standin) -> None:
    with standin.start(loads=["libcudart.so.12"]) as program:
        program.do("cudaLaunchKernel")  # loads libcuda
        fresh_watch.attach()
        program.do("cudaLaunchKernel times=100")
        batch = fresh_watch.read()
    assert numbers(batch, "zernel.probe.hits", process_pid=program.pid) == [200], (
        "100 of the runtime, and 100 of the driver inside them"
    )
    (spent,) = doubles(batch, "zernel.probe.time", process_pid=program.pid)
    (floor,) = doubles(batch, "zernel.probe.floor")
    assert spent > 0
    assert floor > 0
