"""Eleven seconds of five processes, as the ebpf and nvml receivers report them: data with known values.

One process waits for data, one is in collectives, one computes on its GPU, one runs an optimizer, one does not train.
"""

from collections.abc import Iterator

import numpy as np

from otel_zernel.batch import Batch
from otel_zernel.otlp.json import to_json
from otel_zernel.otlp.points import Descriptor, Period, Scope, Series, encode_point_attributes, encode_resource
from otel_zernel_libraries.arrays import KnownSeries
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.emit.encoding import process_resource
from otel_zernel_receivers.ebpf.emit.families import COLLECTIVE_DURATION, OPERATION_FAMILIES
from otel_zernel_receivers.ebpf.emit.metrics import MetricEncoder
from otel_zernel_receivers.ebpf.emit.reading_info import MetricEncoding, ReadingInfo
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, HitCount, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import TableReadings

SECOND = 1_000_000_000
START = 1_752_871_354 * SECOND
READINGS = 11
LOADING, COLLECTING, COMPUTING, OPTIMIZING, OTHER = (WatchedProcess(row, 1, 101 + row) for row in range(5))
GIB = 1 << 30
MEMORY = [(LOADING, 0, 3 * GIB, 5 * GIB), (COLLECTING, 1, 7 * GIB, 7 * GIB), (OPTIMIZING, None, 1 * GIB, 2 * GIB)]
"""Process, GPU, bytes in use, their maximum."""
COLLECTIVES = {"all_reduce": 4_000_000, "broadcast": 1_000_000, "all_gather": 2_000_000, "reduce_scatter": 3_000_000}
"""The longest of 100 durations in ns. The others are the multiples of its hundredth."""

_LAYOUT = HdrLayout(HIGHEST_NS, 2)


def recorded(host: str = "node-1") -> str:
    """The data in OTLP, a reading in each line."""
    return "".join(to_json(_reading(number, host).metrics).decode() + "\n" for number in range(READINGS))


def _reading(number: int, host: str) -> Batch:
    period = Period(START + number * SECOND, START + (number + 1) * SECOND)
    encoding = MetricEncoding(
        _LAYOUT,
        ProbeCost(500, 1000, 500, 500),
        lambda *_: None,
        lambda process: process_resource(
            {"host.name": host, "service.name": "llm", "process.pid": process.pid, "zernel.rank": process.row}
        ),
    )
    encoder = MetricEncoder(encoding, lambda _: True)
    batches = encoder.batches(_tables(), ReadingInfo(number + 1, period, Coverage(1.0)))
    return Batch.join([_utilization(host, period.end_ns), *batches])


def _tables() -> TableReadings:
    cpu = [
        CpuReading(LOADING, HitCount(1), 0, SECOND // 2, 0, 0, 0),
        CpuReading(COLLECTING, HitCount(1), 0, 0, 0, 0, 0),
        CpuReading(COMPUTING, HitCount(1), 0, 0, 0, 0, 0),
        CpuReading(OPTIMIZING, HitCount(1), 0, 0, 1_000_000, 0, 0),
        CpuReading(OTHER, HitCount(1), 0, 0, 0, 0, 0),
    ]
    memory = [MemoryReading(process, gpu, used, peak, 1, 0) for process, gpu, used, peak in MEMORY]
    return TableReadings(
        series=list(_series()),
        memory=memory,
        cpu=cpu,
        threads=[],
        failures=[],
        losses={},
        lost_events={},
        events=np.empty(0),
    )


def _series() -> Iterator[SeriesReading]:
    yield _calls(LOADING, Operation.RUNTIME_LAUNCH, 100_000)
    yield _calls(OPTIMIZING, Operation.RUNTIME_LAUNCH, 500_000)
    yield _calls(LOADING, Operation.DATALOADER_WAIT, 20_000_000)
    yield _calls(COLLECTING, Operation.FUTEX_WAIT, 10_000_000)
    yield _calls(OPTIMIZING, Operation.SYNC, 1_000_000)
    for operation, families in OPERATION_FAMILIES.items():
        name = str(families.attributes.get("zernel.nccl.operation", ""))
        if families.duration is COLLECTIVE_DURATION and name in COLLECTIVES:
            yield _calls(COLLECTING, operation, COLLECTIVES[name])


def _calls(process: WatchedProcess, operation: int, longest: int) -> SeriesReading:
    """100 calls: one of each hundredth of the longest, in ns."""
    durations = np.arange(1, 101) * (longest // 100)
    index, counts = np.unique(_LAYOUT.index(durations), return_counts=True)
    return SeriesReading(process, operation, 0, index, counts, int(durations.sum()), longest, 0)


def _utilization(host: str, time_ns: int) -> Batch:
    gauge = Descriptor("zernel.gpu.process.utilization", "1", "gauge")
    attributes = encode_point_attributes({"process.pid": COMPUTING.pid, "zernel.gpu.engine": "sm"})
    resource = encode_resource({"host.name": host, "zernel.gpu.index": 0})
    return KnownSeries([Series(resource, Scope("nvml"), gauge, attributes)]).batch(np.array([0.95]), time_ns)
