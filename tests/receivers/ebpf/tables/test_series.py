"""New calls are computed from counters that only grow and wrap around at 2^32."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.kernel_structs import SLOT
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import KernelSeriesTable, SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import counted_layout
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


class OwnMap:
    """A map in the memory of this process."""

    def __init__(self, size: int) -> None:
        self._bytes = bytearray(size)
        self.mapped = 0
        """Bytes, of the last call of `array`."""

    def array(self, dtype: np.dtype[Any], size: int | None = None) -> NDArray[Any]:
        self.mapped = len(self._bytes) if size is None else size
        return np.frombuffer(self._bytes, dtype, self.mapped // dtype.itemsize)

    def put(self, key: None, value: bytes) -> None:
        pass


class OneProcess:
    def processes(self, rows: NDArray[np.integer[Any]]) -> list[WatchedProcess]:
        return [WatchedProcess(0, 1, 812)] * len(rows)


def test_counters_are_mapped_as_far_as_slots_are_used() -> None:
    """Mapped pages count as memory of the collector: those of all slots take 9.4 MB."""
    layout, slots = counted_layout(), 512
    maps: Any = {"free_slots": OwnMap(0), "slots": OwnMap(slots * SLOT.itemsize)}
    maps["counters"] = OwnMap(slots * layout.length * 4)
    kernel, counters = (maps[name].array(dtype) for name, dtype in (("slots", SLOT), ("counters", np.dtype("<u4"))))
    rows: Any = OneProcess()
    table = KernelSeriesTable(maps, rows, layout)
    for number, mapped in ((0, 32), (31, 32), (32, 64), (100, 200), (3, 200), (511, slots)):
        kernel["count"][number] += 3
        counters[number * layout.length + 7] += 3
        (reading,) = table.read()
        assert (reading.index.tolist(), reading.counts.tolist()) == ([7], [3])
        assert maps["counters"].mapped == mapped * layout.length * 4
