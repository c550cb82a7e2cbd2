"""New calls are computed from counters that only grow and wrap around at 2^32."""

from collections.abc import Iterator

import numpy as np
import pytest

from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from tests.receivers.ebpf.standin import Program, Standin
from tests.receivers.ebpf.watching import watched_program


@pytest.fixture
def loaded(loadable: None, standin: Standin) -> Iterator[tuple[LoadedProbes, Program]]:
    """The loaded probes, and a program whose launches are counted."""
    with watched_program(standin, EbpfConfig()) as (_, loaded_probes, program):
        yield loaded_probes, program


def launches(loaded: LoadedProbes, program: Program) -> list[SeriesReading]:
    readings = loaded.tables.series.read()
    return [
        reading
        for reading in readings
        if (reading.process.pid, reading.operation) == (program.pid, Operation.RUNTIME_LAUNCH)
    ]


def test_counters_that_wrap_around_lose_no_call(loaded: tuple[LoadedProbes, Program]) -> None:
    bpf, program = loaded
    counters = bpf.bpf.maps["counters"].array(np.dtype("<u4"))
    counters[:] = 2**32 - 1
    program.do("cudaLaunchKernel")
    launches(bpf, program)
    for _ in range(3):
        program.do("cudaLaunchKernel times=500")
        (reading,) = launches(bpf, program)
        assert reading.counts.sum() == 500
        assert reading.counts.min() > 0
    assert (counters < 2**31).any()


def test_a_reading_has_only_new_calls(loaded: tuple[LoadedProbes, Program]) -> None:
    bpf, program = loaded
    program.do("cudaLaunchKernel times=500")
    (first,) = launches(bpf, program)
    assert launches(bpf, program) == []
    program.do("cudaLaunchKernel times=2")
    (second,) = launches(bpf, program)
    assert [int(one.counts.sum()) for one in (first, second)] == [500, 2]
    assert 0 < second.sum_ns < first.sum_ns + second.sum_ns


def test_more_series_than_are_compared_at_once_are_all_read(loaded: tuple[LoadedProbes, Program]) -> None:
    """Each fork is a process, and so has its own series."""
    bpf, program = loaded
    program.do("cudaLaunchKernel times=20 forks=100")
    readings = [one for one in bpf.tables.series.read() if one.operation == Operation.RUNTIME_LAUNCH]
    assert len(readings) == len({reading.process for reading in readings}) >= 100
    assert sum(reading.counts.sum() for reading in readings) == 20 * 100
    assert all((np.diff(reading.index) > 0).all() for reading in readings)
