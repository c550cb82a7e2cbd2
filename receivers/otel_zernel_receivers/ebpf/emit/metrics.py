"""Readings of the kernel's tables as OTLP metrics, in small batches."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TypeVar

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import (
    HISTOGRAM_ATTRIBUTES,
    NUMBER_ATTRIBUTES,
    Descriptor,
    Period,
    encode_attributes,
    encode_number_point,
)
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.budget.scaling import probe_seconds
from otel_zernel_receivers.ebpf.emit.attributes import (
    of_device,
    of_end,
    of_phase,
    of_process,
    of_series,
    of_thread_state,
)
from otel_zernel_receivers.ebpf.emit.encoding import encode_histogram_points, encode_resources, service_resource
from otel_zernel_receivers.ebpf.emit.ends import ProcessEnd
from otel_zernel_receivers.ebpf.emit.error_types import error_type
from otel_zernel_receivers.ebpf.emit.families import (
    ALLOCATIONS,
    CPU_BURST,
    CUDA_ERRORS,
    FREES,
    IO_WAIT,
    LEAD_THREAD_TIME,
    LEFT_OUT,
    LOST_EVENTS,
    MEMORY_PEAK,
    MEMORY_USED,
    MISSING_MARKS,
    NCCL_ERRORS,
    OFF_CPU,
    OPERATION_FAMILIES,
    PHASE_ELAPSED,
    PROBE_EXCESS,
    PROBE_FLOOR,
    PROBE_HITS,
    PROBE_SAMPLED,
    PROBE_TIME,
    PROCESS_ENDS,
    READ_COUNT,
    READ_SIZE,
    READING_SEQUENCE,
    THREAD_TIME,
    WORKER_CPU,
    WORKER_ENDS,
    WORKER_IO_WAIT,
    WORKER_READ_COUNT,
    WORKER_READ_SIZE,
    WORKERS,
)
from otel_zernel_receivers.ebpf.probes.calls import Flag
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.processes.scanner import Reason
from otel_zernel_receivers.ebpf.processes.workers import WorkersReading
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import TableReadings
from otel_zernel_receivers.ebpf.tables.thread_times import ThreadsReading

ReadingT = TypeVar("ReadingT", SeriesReading, MemoryReading, CpuReading, ThreadsReading, FailureReading, WorkersReading)

OnSeries = Callable[[int, bytes, Descriptor, bytes], None]
"""Called for each series of a process that has a point: pid, encoded resource, metric, and the attributes as encoded
for its points."""

SERIES_PER_BATCH = 64
"""Above this number of series, a batch ends with its current process. A process without series counts as one. A batch
holds the event loop for some 40 us per series, and other tasks run between batches."""

STATE_GROUPS = frozenset({Group.LAUNCH, Group.COPY_SYNC, Group.COLLECTIVE})
"""The probes that show in which state a thread is."""

OWN_SERVICE = "otel-zernel"
"""The `service.name` of points that are about the receiver itself. The collector's own telemetry has the same one."""


@dataclass(frozen=True, slots=True)
class ReadingInfo:
    """The data of a reading that is not in the kernel's tables."""

    number: int
    """Of this reading since the receiver started, from 1."""
    period: Period
    coverage: Coverage
    skipped: Mapping[Reason, int] = field(default_factory=dict)
    """Items that the last scan skipped."""
    missing_marks: Mapping[int, Collection[Mark]] = field(default_factory=dict)
    """By pid."""
    workers: Sequence[WorkersReading] = ()
    ends: Sequence[ProcessEnd] = ()


@dataclass(frozen=True, slots=True)
class MetricEncoder:
    """Encodes readings as metrics."""

    layout: HdrLayout
    cost: ProbeCost
    is_wanted: Callable[[WatchedProcess], bool]
    """Metrics of other processes are dropped."""
    on_series: OnSeries
    resource_of: Callable[[WatchedProcess], bytes]
    """The encoded resource of a process."""

    def batches(self, readings: TableReadings, info: ReadingInfo) -> list[Batch]:
        """The metrics of a reading in small batches. All points of a process are in one batch; points without a process
        are in the first."""
        numbers = self._batch_numbers(readings)
        of_pid = {process.pid: process for process in numbers}
        calls = readings.calls()
        points: defaultdict[int, _BatchPoints] = defaultdict(lambda: _BatchPoints(self, info, calls))
        points[0].add_receiver()
        for pid, marks in info.missing_marks.items():
            process = of_pid.get(pid)
            points[numbers[process] if process else 0].add_missing_marks(pid, process, marks)
        for number, series in groupby(_numbered(readings.series, numbers), itemgetter(0)):
            points[number].add_series(one for _, one in series)
        for number, memory in _numbered(readings.memory, numbers):
            points[number].add_memory(memory)
        for number, cpu in _numbered(readings.cpu, numbers):
            points[number].add_cpu(cpu)
        for number, threads in _numbered(readings.threads, numbers):
            points[number].add_threads(threads)
        for number, failure in _numbered(readings.failures, numbers):
            points[number].add_failure(failure)
        for number, workers in _numbered(info.workers, numbers):
            points[number].add_workers(workers)
        points[0].add_ends(info.ends)
        for process, lost in readings.lost_events.items():
            points[numbers.get(process, 0)].add_lost_events(process, lost)
        return [of_batch.batch() for of_batch in points.values()]

    def _batch_numbers(self, readings: TableReadings) -> dict[WatchedProcess, int]:
        """The number of the batch of each wanted process."""
        series = Counter(reading.process for reading in readings.series)
        others = (reading.process for part in (readings.memory, readings.cpu, readings.failures) for reading in part)
        processes = [process for process in dict.fromkeys((*series, *others)) if self.is_wanted(process)]
        before = accumulate((max(series[process], 1) for process in processes), initial=0)
        return {process: count // SERIES_PER_BATCH for process, count in zip(processes, before, strict=False)}


def _numbered(part: Iterable[ReadingT], numbers: Mapping[WatchedProcess, int]) -> list[tuple[int, ReadingT]]:
    """The readings of wanted processes with the numbers of their batches, sorted by number."""
    return sorted(((numbers[one.process], one) for one in part if one.process in numbers), key=itemgetter(0))


class _BatchPoints:
    """The points of one batch, by metric."""

    def __init__(self, encoder: MetricEncoder, info: ReadingInfo, calls: Mapping[SeriesKey, int]) -> None:
        self._calls = calls
        self._layout, self._cost, self._on_series = encoder.layout, encoder.cost, encoder.on_series
        self._info, self._period, self._coverage = info, info.period, info.coverage
        self._resource_of = cache(encoder.resource_of)
        self._points: defaultdict[bytes, defaultdict[Descriptor, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        """By encoded resource and metric."""

    def add_receiver(self) -> None:
        """The points that are about no process."""
        self._add_own(READING_SEQUENCE, b"", self._info.number)
        self._add_own(PROBE_FLOOR, b"", self._cost.floor_ns / 1e9)
        for group in Group:
            attributes = encode_attributes({semconv.PROBE_NAME: group}, NUMBER_ATTRIBUTES)
            self._add_own(PROBE_SAMPLED, attributes, self._coverage.shares.get(group, 1.0))
        self._add_own(PROBE_EXCESS, b"", self._coverage.excess)
        for reason in Reason:
            attributes = encode_attributes({"error.type": reason}, NUMBER_ATTRIBUTES)
            self._add_own(LEFT_OUT, attributes, self._info.skipped.get(reason, 0))

    def add_series(self, readings: Iterable[SeriesReading]) -> None:
        scaled = self._coverage.scaled(one for one in readings if one.operation in OPERATION_FAMILIES)
        if not scaled:
            return
        attributes = [self._attributes_of(one, HISTOGRAM_ATTRIBUTES) for one in scaled]
        points = encode_histogram_points(attributes, scaled, self._layout, self._period)
        for reading, of_point, point in zip(scaled, attributes, points, strict=True):
            families = OPERATION_FAMILIES[reading.operation]
            resource = self._resource_of(reading.process)
            self._on_series(reading.process.pid, resource, families.duration, of_point)
            self._points[resource][families.duration].append(point)
            if families.size:
                of_size = self._attributes_of(reading, NUMBER_ATTRIBUTES)
                self._add_number_of(reading.process, families.size, of_size, reading.bytes)

    def add_memory(self, reading: MemoryReading) -> None:
        process, attributes = reading.process, of_device(reading.process.pid, reading.device)
        self._add_number_of(process, MEMORY_USED, attributes, reading.used)
        self._add_number_of(process, MEMORY_PEAK, attributes, reading.peak)
        if reading.allocations:
            self._add_number_of(process, ALLOCATIONS, attributes, reading.allocations)
        if reading.frees:
            self._add_number_of(process, FREES, attributes, reading.frees)

    def add_cpu(self, reading: CpuReading) -> None:
        process, attributes = reading.process, of_process(reading.process.pid)
        self._add_number_of(process, PROBE_HITS, attributes, reading.hits.all)
        self._add_number_of(process, PROBE_TIME, attributes, self._probe_s(reading))
        self._add_number_of(process, OFF_CPU, attributes, reading.off_cpu_ns / 1e9)
        self._add_number_of(process, IO_WAIT, attributes, reading.io_wait_ns / 1e9)
        self._add_number_of(process, CPU_BURST, attributes, reading.last_burst_ns / 1e9)
        if reading.phase_ns:
            self._add_number_of(process, PHASE_ELAPSED, of_phase(process.pid, reading.phase), reading.phase_ns / 1e9)
        if reading.reads:
            self._add_number_of(process, READ_COUNT, attributes, reading.reads)
            self._add_number_of(process, READ_SIZE, attributes, reading.bytes_read)

    def _probe_s(self, reading: CpuReading) -> float:
        """The time that probes took."""
        hits = {reading.process: reading.hits}
        covered = self._coverage
        return probe_seconds(self._calls, hits, self._cost, covered.seconds, covered.sampled_seconds)[reading.process]

    def add_threads(self, reading: ThreadsReading) -> None:
        is_sample = not self._coverage.shares.keys().isdisjoint(STATE_GROUPS)
        for family, times in ((THREAD_TIME, reading.all_ns), (LEAD_THREAD_TIME, reading.lead_ns)):
            for state, time_ns in times.items():
                attributes = of_thread_state(reading.process.pid, state, is_sample)
                self._add_number_of(reading.process, family, attributes, time_ns / 1e9)

    def add_failure(self, reading: FailureReading) -> None:
        family = NCCL_ERRORS if reading.flags & Flag.NCCL else CUDA_ERRORS
        pid, error = reading.process.pid, error_type(reading.code, reading.flags)
        attributes = encode_attributes({"process.pid": pid, "error.type": error}, NUMBER_ATTRIBUTES)
        self._add_number_of(reading.process, family, attributes, reading.count)

    def add_missing_marks(self, pid: int, process: WatchedProcess | None, marks: Collection[Mark]) -> None:
        resource = self._resource_of(process) if process else service_resource(OWN_SERVICE)
        for mark in sorted(marks):
            is_sampled = mark is Mark.OPERATORS and Group.OPERATORS in self._coverage.shares
            sampled = {semconv.SAMPLED: True} if is_sampled else {}
            attributes = encode_attributes({"process.pid": pid, semconv.MARK: mark, **sampled}, NUMBER_ATTRIBUTES)
            self._on_series(pid, resource, MISSING_MARKS, attributes)
            self._add_number(resource, MISSING_MARKS, attributes, 1)

    def add_workers(self, reading: WorkersReading) -> None:
        process, attributes = reading.process, of_process(reading.process.pid)
        self._add_number_of(process, WORKERS, attributes, reading.count)
        self._add_number_of(process, WORKER_CPU, attributes, reading.cpu_s)
        self._add_number_of(process, WORKER_IO_WAIT, attributes, reading.io_wait_s)
        if reading.reads:
            self._add_number_of(process, WORKER_READ_COUNT, attributes, reading.reads)
            self._add_number_of(process, WORKER_READ_SIZE, attributes, reading.bytes_read)

    def add_ends(self, ends: Iterable[ProcessEnd]) -> None:
        """One point for each way to end. The series have no pid: those of ranks that end repeatedly go on."""
        for (service, is_worker, encoded), count in Counter(map(of_end, ends)).items():
            family = WORKER_ENDS if is_worker else PROCESS_ENDS
            self._add_number(service_resource(service), family, encoded, count)

    def add_lost_events(self, process: WatchedProcess, count: int) -> None:
        self._add_number_of(process, LOST_EVENTS, of_process(process.pid), count)

    def batch(self) -> Batch:
        encoded = encode_resources(self._points)
        count = sum(len(points) for of_resource in self._points.values() for points in of_resource.values())
        return Batch.encoded(metrics=encoded, point_count=count)

    def _attributes_of(self, reading: SeriesReading, field: int) -> bytes:
        is_sample = self._coverage.is_sample(reading)
        return of_series(reading.process.pid, reading.operation, reading.phase, is_sample, field)

    def _add_number_of(self, process: WatchedProcess, family: Descriptor, attributes: bytes, value: float) -> None:
        resource = self._resource_of(process)
        self._on_series(process.pid, resource, family, attributes)
        self._add_number(resource, family, attributes, value)

    def _add_own(self, family: Descriptor, attributes: bytes, value: float) -> None:
        self._add_number(service_resource(OWN_SERVICE), family, attributes, value)

    def _add_number(self, resource: bytes, family: Descriptor, attributes: bytes, value: float) -> None:
        self._points[resource][family].append(encode_number_point(attributes, value, self._period))
