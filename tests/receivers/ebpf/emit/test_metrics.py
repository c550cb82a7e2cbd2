"""Readings of many processes as metrics."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, NumberDataPoint

from otel_zernel.batch import Batch, points
from otel_zernel.otlp.points import Descriptor, Period
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_libraries.training.cpu_takers import TakerKind
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.emit.encoding import service_resource
from otel_zernel_receivers.ebpf.emit.metrics import SERIES_PER_BATCH, MetricEncoder
from otel_zernel_receivers.ebpf.emit.reading_info import MetricEncoding, ReadingInfo
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.probes.calls import Operation, Phase
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import (
    CpuReading,
    HitCount,
    LostEvents,
    TakersReading,
    WatchedProcess,
)
from otel_zernel_receivers.ebpf.tables.samples import SamplesReading
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import TableReadings
from otel_zernel_receivers.ebpf.tables.thread_times import ThreadsReading
from tests.receivers.ebpf.watching import attributes_of, metrics_of

OPERATIONS = (Operation.RUNTIME_LAUNCH, Operation.SYNC, Operation.COPY_DEFAULT)
PROCESSES = [WatchedProcess(row, 1, 1000 + row) for row in range(100)]


JOB = service_resource("job")


def series_of(process: WatchedProcess, operation: int) -> SeriesReading:
    return SeriesReading(process, operation, 0, np.array([300, 301]), np.array([2, 3]), 9, 5, 7)


READINGS = TableReadings(
    [series_of(process, operation) for operation in OPERATIONS for process in PROCESSES],
    [MemoryReading(process, 0, 10, 20, 1, 1) for process in PROCESSES],
    [CpuReading(process, HitCount(1), 2, 3, 4, 5, 6) for process in PROCESSES],
    [ThreadsReading(process, {"gpu_wait": 8, "on_cpu": 2}, {"gpu_wait": 5}) for process in PROCESSES],
    [FailureReading(process, 0, 2, 1) for process in PROCESSES],
    {},
    {PROCESSES[0]: LostEvents(1, 0, 0)},
    np.empty(0),
)


def ignore(pid: int, resource: bytes, family: Descriptor, attributes: bytes) -> None:
    return


def encoded(
    readings: TableReadings,
    unwanted: frozenset[WatchedProcess] = frozenset(),
    missing_marks: Mapping[int, Collection[Mark]] | None = None,
    number: int = 1,
    coverage: Coverage | None = None,
    taker_of: Callable[[WatchedProcess, int], tuple[TakerKind, str]] = lambda *_: (TakerKind.OTHER, ""),
) -> list[Batch]:
    layout, cost = HdrLayout(HIGHEST_NS, 2), ProbeCost(500, 1000, 500, 500)
    info = ReadingInfo(number, Period(1, 2), coverage or Coverage(1.0), {}, missing_marks or {}, taker_of=taker_of)
    encoder = MetricEncoder(
        MetricEncoding(layout, cost, ignore, lambda _: JOB), lambda process: process not in unwanted
    )
    return encoder.batches(readings, info)


def processes_of(batch: Batch) -> list[int]:
    """The pid of each point that has one."""
    all_points: Iterable[HistogramDataPoint | NumberDataPoint] = chain.from_iterable(
        points(metric) for metric in metrics_of(batch).values()
    )
    found = [attributes_of(point).get("process_pid") for point in all_points]
    return [pid for pid in found if isinstance(pid, int)]


def test_batches_are_small_and_each_has_all_points_of_its_processes() -> None:
    batches = encoded(READINGS)
    sets = [set(processes_of(batch)) for batch in batches]
    assert sum(map(len, sets)) == len(set.union(*sets)) == len(PROCESSES)
    assert max(map(len, sets)) * len(OPERATIONS) < SERIES_PER_BATCH + len(OPERATIONS)
    # Histograms, a copy's bytes, 4 points of memory, 7 of CPU time and reads, 3 of threads, a failure; 1 lost event.
    assert sum(len(processes_of(batch)) for batch in batches) == len(PROCESSES) * (len(OPERATIONS) + 16) + 1


def test_batches_of_processes_without_calls_are_small_too() -> None:
    processes = [WatchedProcess(row, 0, 1000 + row) for row in range(3 * SERIES_PER_BATCH)]
    readings = replace(NOTHING, cpu=[CpuReading(process, HitCount(1), 2, 3, 4, 5, 6) for process in processes])
    sets = [set(processes_of(batch)) for batch in encoded(readings)]
    assert sum(map(len, sets)) == len(processes)
    assert max(map(len, sets)) <= SERIES_PER_BATCH


def test_the_point_count_of_each_batch_is_right() -> None:
    batches = list(encoded(READINGS))
    assert batches
    for batch in batches:
        assert batch.point_count == Batch.from_bytes(metrics=batch.bytes_of("metrics")).point_count


def test_unwanted_processes_have_no_points() -> None:
    readings = replace(READINGS, lost_events={})
    found = set(chain.from_iterable(map(processes_of, encoded(readings, frozenset(PROCESSES[1:])))))
    assert found == {PROCESSES[0].pid}


def test_reads_have_no_phase_even_while_the_process_is_in_one() -> None:
    process = PROCESSES[0]
    reading = CpuReading(process, HitCount(1), 2, 3, 4, 5, 6, phase=Phase.DATA_LOADING, phase_ns=7)
    (batch,) = encoded(replace(NOTHING, cpu=[reading]))
    metrics = metrics_of(batch)
    for name, attributes in {
        "zernel.phase.elapsed": {"process_pid": process.pid, "zernel_phase": "data_loading"},
        "zernel.process.read.count": {"process_pid": process.pid},
        "zernel.process.read.size": {"process_pid": process.pid},
    }.items():
        assert [attributes_of(point) for point in points(metrics[name])] == [attributes]


NOTHING = TableReadings([], [], [], [], [], {}, {}, np.empty(0))


def test_samples_are_counted_by_thread_and_activity() -> None:
    process = PROCESSES[0]
    counts: dict[tuple[int, str], int] = {(process.pid, Activity.PYTHON): 12, (0, Activity.OPERATOR): 3}
    (batch,) = encoded(
        replace(
            NOTHING,
            cpu=[CpuReading(process, HitCount(1), 2, 3, 4, 5, 6)],
            samples=[SamplesReading(process, counts, 0.001)],
        )
    )
    found = points(metrics_of(batch)["zernel.samples"])
    assert [(attributes_of(point), point.as_int) for point in found] == [
        ({"process_pid": 1000, "thread_id": 1000, "zernel_activity": "python"}, 12),
        ({"process_pid": 1000, "zernel_activity": "operator"}, 3),
    ]


def test_takers_of_a_cpu_are_named_with_what_they_are_to_the_process() -> None:
    process = PROCESSES[0]
    others = {(7, "pt_data_worker"): 500_000_000, (8, "encoder"): 200_000_000, (9, "sshd"): 1_000_000}
    kinds = {7: (TakerKind.CHILD, ""), 8: (TakerKind.OTHER, "/neighbour")}
    (batch,) = encoded(
        replace(
            NOTHING,
            cpu=[CpuReading(process, HitCount(1), 2, 3, 4, 5, 6)],
            takers=[TakersReading(process, 300_000_000, others)],
        ),
        taker_of=lambda _, pid: kinds[pid],
    )
    found = points(metrics_of(batch)["zernel.process.cpu.taken.time"])
    key = "zernel_cpu_taker"
    assert [({k.removeprefix(key): v for k, v in attributes_of(one).items()}, one.as_double) for one in found] == [
        ({"process_pid": 1000, "": "child", "_name": "pt_data_worker"}, 0.5),
        ({"process_pid": 1000, "": "other", "_name": "encoder", "_cgroup": "/neighbour"}, 0.2),
        ({"process_pid": 1000, "": "self"}, 0.3),
        ({"process_pid": 1000, "": "other"}, 0.001),
    ]


def test_without_processes_only_the_receiver_has_metrics() -> None:
    (batch,) = encoded(NOTHING)
    assert set(metrics_of(batch)) == {
        "zernel.reading.sequence",
        "zernel.probe.floor",
        "zernel.probe.sampled",
        "zernel.probe.excess",
        "zernel.ebpf.left_out",
    }


@pytest.mark.parametrize("readings", [NOTHING, READINGS], ids=["one batch", "many batches"])
def test_each_reading_has_one_sequence_number_beside_the_floor(readings: TableReadings) -> None:
    by_batch = [metrics_of(batch) for batch in encoded(readings, number=12)]
    (metrics,) = [one for one in by_batch if "zernel.reading.sequence" in one]
    assert [one for one in by_batch if "zernel.probe.floor" in one] == [metrics]
    (point,) = metrics["zernel.reading.sequence"].gauge.data_points
    assert (point.as_int, len(point.attributes)) == (12, 0)
    assert metrics["zernel.reading.sequence"].unit == "{reading}"


def test_missing_marks_are_in_the_batch_of_their_process() -> None:
    missing = {process.pid: {Mark.DDP_WAIT} for process in PROCESSES}
    sets = [set(processes_of(batch)) for batch in encoded(READINGS, missing_marks=missing)]
    assert len(sets) > 1
    assert sum(map(len, sets)) == len(set.union(*sets)) == len(PROCESSES)


def test_missing_marks_have_points_before_anything_of_their_process_is_counted() -> None:
    (batch,) = encoded(NOTHING, missing_marks={17: {Mark.SCOPES, Mark.BACKWARD}})
    found = [attributes_of(point) for point in points(metrics_of(batch)["zernel.ebpf.missing_marks"])]
    assert [(one["process_pid"], one["zernel_mark"]) for one in found] == [(17, "backward"), (17, "scopes")]


@pytest.mark.parametrize("group", Group)
def test_states_of_threads_are_marked_while_calls_that_show_them_are_sampled(group: Group) -> None:
    made = metrics_of(encoded(READINGS, coverage=Coverage(1.0, {}, {group: 0.5}))[0])
    of_states = [point for name in ("thread", "lead_thread") for point in points(made[f"zernel.cuda.{name}.time"])]
    assert of_states
    assert {attributes_of(point).get("zernel_sampled") for point in of_states} == {
        None if group in (Group.OPERATORS, Group.IN_PLACE) else True
    }
