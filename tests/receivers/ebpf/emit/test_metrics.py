"""What is read of many processes, as metrics."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, NumberDataPoint

from otel_zernel.batch import Batch, points
from otel_zernel.otlp.histograms import HdrLayout
from otel_zernel.otlp.points import Descriptor, Period
from otel_zernel_receivers.ebpf.budget.sampling import Watched
from otel_zernel_receivers.ebpf.emit.metrics import AT_ONCE, batches_of
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.probes.catalogue import Operation
from otel_zernel_receivers.ebpf.probes.loading import Cost
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, Process
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import Readings
from tests.receivers.ebpf.watching import attributes_of, metrics_of

OPERATIONS = (Operation.RUNTIME_LAUNCH, Operation.SYNC, Operation.COPY_DEFAULT)
PROCESSES = [Process(row, 1, 1000 + row) for row in range(100)]


def series_of(process: Process, operation: int) -> SeriesReading:
    return SeriesReading(process, operation, 0, np.array([300, 301]), np.array([2, 3]), 9, 5, 7)


READINGS = Readings(
    [series_of(process, operation) for operation in OPERATIONS for process in PROCESSES],
    [MemoryReading(process, 0, 10, 20, 1, 1) for process in PROCESSES],
    [CpuReading(process, 1, 2, 3, 4, 5, 6) for process in PROCESSES],
    [FailureReading(process, 0, 2, 1) for process in PROCESSES],
    {},
    {PROCESSES[0]: 1},
    np.empty(0),
)


def ignore(pid: int, family: Descriptor, attributes: bytes) -> None:
    return


def told(
    readings: Readings,
    unwanted: frozenset[Process] = frozenset(),
    missing: Mapping[int, Collection[Mark]] | None = None,
) -> list[Batch]:
    layout, watched = HdrLayout(HIGHEST_NS, 2), Watched(1.0)
    return batches_of(
        readings,
        lambda process: process not in unwanted,
        layout,
        Cost(500, 1000, 500),
        Period(1, 2),
        watched,
        ignore,
        {},
        missing or {},
    )


def processes_of(batch: Batch) -> list[int]:
    """The process of each point that has one."""
    all_points: Iterable[HistogramDataPoint | NumberDataPoint] = chain.from_iterable(
        points(metric) for metric in metrics_of(batch).values()
    )
    found = [attributes_of(point).get("process_pid") for point in all_points]
    return [pid for pid in found if isinstance(pid, int)]


def test_batches_are_small_and_all_points_of_a_process_are_in_one_of_them() -> None:
    batches = told(READINGS)
    found = [set(processes_of(batch)) for batch in batches]
    assert sum(map(len, found)) == len(set.union(*found)) == len(PROCESSES)
    assert max(map(len, found)) * len(OPERATIONS) < AT_ONCE + len(OPERATIONS)
    # Histograms, a copy's bytes, 4 points of memory, 7 of CPU time and reads, a failure; and once lost events.
    assert sum(len(processes_of(batch)) for batch in batches) == len(PROCESSES) * (len(OPERATIONS) + 13) + 1


def test_every_batch_knows_how_many_points_it_has() -> None:
    for batch in told(READINGS):
        assert batch.point_count == Batch.from_bytes(metrics=batch.metrics_bytes()).point_count


def test_nothing_is_told_of_processes_that_are_not_wanted() -> None:
    readings = replace(READINGS, lost_events={})
    found = set(chain.from_iterable(map(processes_of, told(readings, frozenset(PROCESSES[1:])))))
    assert found == {PROCESSES[0].pid}


def test_without_any_process_the_receiver_tells_of_itself() -> None:
    (batch,) = told(Readings([], [], [], [], {}, {}, np.empty(0)))
    assert set(metrics_of(batch)) == {
        "zernel.probe.floor",
        "zernel.probe.sampled",
        "zernel.probe.excess",
        "zernel.ebpf.left_out",
    }


def test_missing_marks_of_a_process_have_points_though_nothing_of_it_was_counted() -> None:
    (batch,) = told(Readings([], [], [], [], {}, {}, np.empty(0)), missing={17: {Mark.SCOPES, Mark.BACKWARD}})
    found = [attributes_of(point) for point in points(metrics_of(batch)["zernel.ebpf.missing_marks"])]
    assert [(one["process_pid"], one["zernel_mark"]) for one in found] == [(17, "backward"), (17, "scopes")]
