"""The points of a reading, by resource and metric."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache, lru_cache

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import (
    HISTOGRAM_ATTRIBUTES,
    NUMBER_ATTRIBUTES,
    Descriptor,
    Period,
    encode_attributes,
    encode_number_point,
)
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.budget.scaling import probe_seconds
from otel_zernel_receivers.ebpf.emit import families as f
from otel_zernel_receivers.ebpf.emit.encoding import encode_histogram_points, encode_resources, service_resource
from otel_zernel_receivers.ebpf.emit.ends import ProcessEnd
from otel_zernel_receivers.ebpf.emit.reading_info import MetricEncoding, ReadingInfo
from otel_zernel_receivers.ebpf.emit.takers import takers_of
from otel_zernel_receivers.ebpf.probes.calls import Flag, Phase
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.processes.scanner import Reason
from otel_zernel_receivers.ebpf.processes.workers import WorkersReading
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import (
    CpuReading,
    LimitsReading,
    LostEvents,
    TakersReading,
    WatchedProcess,
)
from otel_zernel_receivers.ebpf.tables.samples import SamplesReading
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, SeriesReading
from otel_zernel_receivers.ebpf.tables.thread_times import ThreadsReading

# As in driver_types.h and cuda.h.
_CUDA = {
    1: "invalid_value",
    2: "out_of_memory",
    98: "invalid_device_function",
    100: "no_device",
    101: "invalid_device",
    209: "no_binary_for_gpu",
    400: "invalid_handle",
    600: "not_ready",
    700: "illegal_address",
    701: "launch_out_of_resources",
    702: "launch_timeout",
    710: "assert",
    715: "illegal_instruction",
    719: "launch_failure",
    999: "unknown",
}
# As in nccl.h.
_NCCL = {
    1: "unhandled_cuda_error",
    2: "system_error",
    3: "internal_error",
    4: "invalid_argument",
    5: "invalid_usage",
    6: "remote_error",
}


def error_type(code: int, flags: int) -> str:
    """The name of an error code, or its number if it has no name here. `flags` are those of the probe."""
    return (_NCCL if flags & Flag.NCCL else _CUDA).get(code, str(code))


STATE_GROUPS = frozenset({Group.LAUNCH, Group.COPY_SYNC, Group.COLLECTIVE})
"""The probes that show in which state a thread is."""

OWN_SERVICE = "otel-zernel"
"""The `service.name` of points that are about the receiver itself. The collector's own telemetry has the same one."""


class BatchPoints:
    """The points of one batch, by metric."""

    def __init__(self, encoding: MetricEncoding, info: ReadingInfo, calls: Mapping[SeriesKey, int]) -> None:
        self._calls = calls
        self._layout = encoding.layout
        self._cost = encoding.cost
        self._on_series = encoding.on_series
        self._resource_of = cache(encoding.resource_of)
        self._info = info
        self._period = info.period
        self._coverage = info.coverage
        self._points: defaultdict[bytes, defaultdict[Descriptor, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        """By encoded resource and metric."""

    def add_receiver(self) -> None:
        """The points that are about no process."""
        self._add_own(f.READING_SEQUENCE, b"", self._info.number)
        self._add_own(f.PROBE_FLOOR, b"", self._cost.floor_ns / 1e9)
        for group in Group:
            attributes = encode_attributes({semconv.PROBE_NAME: group}, NUMBER_ATTRIBUTES)
            self._add_own(f.PROBE_SAMPLED, attributes, self._coverage.shares.get(group, 1.0))
        self._add_own(f.PROBE_EXCESS, b"", self._coverage.excess)
        for reason in Reason:
            attributes = encode_attributes({"error.type": reason}, NUMBER_ATTRIBUTES)
            self._add_own(f.LEFT_OUT, attributes, self._info.skipped.get(reason, 0))

    def add_series(self, readings: Iterable[SeriesReading]) -> None:
        scaled = self._coverage.scaled(reading for reading in readings if reading.operation in f.OPERATION_FAMILIES)
        if not scaled:
            return
        attributes = [self._attributes_of(reading, HISTOGRAM_ATTRIBUTES) for reading in scaled]
        points = encode_histogram_points(attributes, scaled, self._layout, self._period)
        for reading, of_point, point in zip(scaled, attributes, points, strict=True):
            families = f.OPERATION_FAMILIES[reading.operation]
            resource = self._resource_of(reading.process)
            self._on_series(reading.process.pid, resource, families.duration, of_point)
            self._points[resource][families.duration].append(point)
            if families.size:
                of_size = self._attributes_of(reading, NUMBER_ATTRIBUTES)
                self._add_number_of(reading.process, families.size, of_size, reading.bytes)

    def add_memory(self, reading: MemoryReading) -> None:
        process, device = reading.process, "unknown" if reading.device is None else reading.device
        attributes = of_process(process.pid, (semconv.GPU_INDEX, device))
        self._add_number_of(process, f.MEMORY_USED, attributes, reading.used)
        self._add_number_of(process, f.MEMORY_PEAK, attributes, reading.peak)
        if reading.allocations:
            self._add_number_of(process, f.ALLOCATIONS, attributes, reading.allocations)
        if reading.frees:
            self._add_number_of(process, f.FREES, attributes, reading.frees)

    def add_cpu(self, reading: CpuReading) -> None:
        process, attributes = reading.process, of_process(reading.process.pid)
        self._add_number_of(process, f.PROBE_HITS, attributes, reading.hits.all)
        self._add_number_of(process, f.PROBE_TIME, attributes, self._probe_s(reading))
        self._add_number_of(process, f.OFF_CPU, attributes, reading.off_cpu_ns / 1e9)
        self._add_number_of(process, f.IO_WAIT, attributes, reading.io_wait_ns / 1e9)
        self._add_number_of(process, f.CPU_BURST, attributes, reading.last_burst_ns / 1e9)
        if reading.phase_ns:
            in_phase = of_process(process.pid, phase_of(reading))
            self._add_number_of(process, f.PHASE_ELAPSED, in_phase, reading.phase_ns / 1e9)
        if reading.reads:
            self._add_number_of(process, f.READ_COUNT, attributes, reading.reads)
            self._add_number_of(process, f.READ_SIZE, attributes, reading.bytes_read)

    def _probe_s(self, reading: CpuReading) -> float:
        """The time that probes took."""
        hits = {reading.process: reading.hits}
        covered = self._coverage
        return probe_seconds(self._calls, hits, self._cost, covered.seconds, covered.sampled_seconds)[reading.process]

    def add_threads(self, reading: ThreadsReading) -> None:
        sampled = semconv.SAMPLED, not self._coverage.shares.keys().isdisjoint(STATE_GROUPS) or None
        for family, times in ((f.THREAD_TIME, reading.all_ns), (f.LEAD_THREAD_TIME, reading.lead_ns)):
            for state, time_ns in times.items():
                attributes = of_process(reading.process.pid, (semconv.THREAD_STATE, state), sampled)
                self._add_number_of(reading.process, family, attributes, time_ns / 1e9)

    def add_failure(self, reading: FailureReading) -> None:
        family = f.NCCL_ERRORS if reading.flags & Flag.NCCL else f.CUDA_ERRORS
        attributes = of_process(reading.process.pid, ("error.type", error_type(reading.code, reading.flags)))
        self._add_number_of(reading.process, family, attributes, reading.count)

    def add_missing_marks(self, pid: int, process: WatchedProcess | None, marks: Collection[Mark]) -> None:
        resource = self._resource_of(process) if process else service_resource(OWN_SERVICE)
        for mark in sorted(marks):
            is_sampled = mark is Mark.OPERATORS and Group.OPERATORS in self._coverage.shares
            attributes = of_process(pid, (semconv.MARK, mark), (semconv.SAMPLED, is_sampled or None))
            self._on_series(pid, resource, f.MISSING_MARKS, attributes)
            self._add_number(resource, f.MISSING_MARKS, attributes, 1)

    def add_samples(self, reading: SamplesReading) -> None:
        """Without a thread id, those of the threads that make no probed calls."""
        process = reading.process
        for (tid, activity), count in reading.counts.items():
            attributes = of_process(process.pid, (semconv.THREAD_ID, tid or None), (semconv.ACTIVITY, activity))
            self._add_number_of(process, f.SAMPLES, attributes, count)

    def add_workers(self, reading: WorkersReading) -> None:
        process, attributes = reading.process, of_process(reading.process.pid)
        self._add_number_of(process, f.WORKERS, attributes, reading.count)
        self._add_number_of(process, f.WORKER_CPU, attributes, reading.cpu_s)
        self._add_number_of(process, f.WORKER_IO_WAIT, attributes, reading.io_wait_s)
        self._add_number_of(process, f.WORKER_MEMORY, attributes, reading.memory)
        if reading.reads:
            self._add_number_of(process, f.WORKER_READ_COUNT, attributes, reading.reads)
            self._add_number_of(process, f.WORKER_READ_SIZE, attributes, reading.bytes_read)

    def add_takers(self, reading: TakersReading) -> None:
        for taker, cgroup, ns in takers_of(reading, self._info.taker_of):
            named = (semconv.CPU_TAKER_NAME, taker.name or None), (semconv.CPU_TAKER_CGROUP, cgroup or None)
            attributes = of_process(reading.process.pid, (semconv.CPU_TAKER, taker.kind), *named)
            self._add_number_of(reading.process, f.CPU_TAKEN, attributes, ns / 1e9)

    def add_limits(self, reading: LimitsReading) -> None:
        process, attributes, throttling = reading.process, of_process(reading.process.pid), reading.throttling
        self._add_number_of(process, f.CPUS, attributes, reading.cpus)
        self._add_number_of(process, f.RUNNABLE, attributes, reading.runnable)
        self._add_number_of(process, f.MEMORY, attributes, reading.memory)
        if reading.memory_left is not None:
            self._add_number_of(process, f.MEMORY_LEFT, attributes, reading.memory_left)
        if throttling and throttling.periods:
            self._add_number_of(process, f.THROTTLED, attributes, throttling.throttled_s)
            self._add_number_of(process, f.PERIODS, attributes, throttling.periods)
            self._add_number_of(process, f.THROTTLED_PERIODS, attributes, throttling.throttled_periods)
        if throttling and throttling.pressure_s is not None:
            self._add_number_of(process, f.CPU_PRESSURE, attributes, throttling.pressure_s)

    def add_ends(self, ends: Iterable[ProcessEnd]) -> None:
        """One point for each way to end. The series have no pid: those of ranks that end repeatedly go on."""
        for (service, is_worker, encoded), count in Counter(map(of_end, ends)).items():
            family = f.WORKER_ENDS if is_worker else f.PROCESS_ENDS
            self._add_number(service_resource(service), family, encoded, count)

    def add_lost_events(self, process: WatchedProcess, lost: LostEvents) -> None:
        """The point covers the time in which events were lost."""
        resource, attributes = self._resource_of(process), of_process(process.pid)
        self._on_series(process.pid, resource, f.LOST_EVENTS, attributes)
        offset_ns = self._info.offset_ns
        period = Period(lost.begin + offset_ns, lost.end + offset_ns) if lost.begin else self._period
        self._points[resource][f.LOST_EVENTS].append(encode_number_point(attributes, lost.number, period))

    def batch(self) -> Batch:
        encoded = encode_resources(self._points)
        count = sum(len(points) for of_resource in self._points.values() for points in of_resource.values())
        return Batch.encoded("metrics", encoded, count)

    def _attributes_of(self, reading: SeriesReading, field: int) -> bytes:
        of_operation = f.OPERATION_FAMILIES[reading.operation].attributes.items()
        sampled = semconv.SAMPLED, self._coverage.is_sample(reading) or None
        return of_process(reading.process.pid, *of_operation, phase_of(reading), sampled, field=field)

    def _add_number_of(self, process: WatchedProcess, family: Descriptor, attributes: bytes, value: float) -> None:
        resource = self._resource_of(process)
        self._on_series(process.pid, resource, family, attributes)
        self._add_number(resource, family, attributes, value)

    def _add_own(self, family: Descriptor, attributes: bytes, value: float) -> None:
        self._add_number(service_resource(OWN_SERVICE), family, attributes, value)

    def _add_number(self, resource: bytes, family: Descriptor, attributes: bytes, value: float) -> None:
        self._points[resource][family].append(encode_number_point(attributes, value, self._period))


@lru_cache(maxsize=8192)  # most are those of an earlier point; by default there are 512 series alone
def of_process(pid: int, *attributes: tuple[str, str | int | None], field: int = NUMBER_ATTRIBUTES) -> bytes:
    """The encoded attributes of a point of a process, without those whose value is None."""
    given = {name: value for name, value in attributes if value is not None}
    return encode_attributes({"process.pid": pid, **given}, field)


def phase_of(reading: SeriesReading | CpuReading) -> tuple[str, str]:
    """The attribute with the phase."""
    return semconv.PHASE, Phase(reading.phase).name.lower()


def of_end(end: ProcessEnd) -> tuple[str, bool, bytes]:
    """The service, whether it was a worker, and the attributes of its point."""
    attributes = encode_attributes({**end.origin, **end.reason}, NUMBER_ATTRIBUTES)
    return end.service, end.is_worker, attributes
