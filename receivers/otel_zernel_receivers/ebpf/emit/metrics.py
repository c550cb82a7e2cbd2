"""What the readings are as metrics: names, units, attributes."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate, groupby
from operator import itemgetter
from typing import TypeVar

from otel_zernel.batch import Batch
from otel_zernel.otlp.histograms import HdrLayout
from otel_zernel.otlp.points import (
    HISTOGRAM_ATTRIBUTES,
    NUMBER_ATTRIBUTES,
    Descriptor,
    Period,
    Scope,
    encode_attributes,
    encode_metric,
    encode_number_point,
    encode_resource,
    encode_resource_metrics,
)
from otel_zernel_receivers.ebpf.budget.overhead import Group
from otel_zernel_receivers.ebpf.budget.sampling import Watched
from otel_zernel_receivers.ebpf.emit.encoding import encode_histogram_points, metric
from otel_zernel_receivers.ebpf.probes.catalogue import COLLECTIVES, HOST_ENQUEUE, Flag, Operation, Phase
from otel_zernel_receivers.ebpf.probes.loading import Cost
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.processes.identities import host_name
from otel_zernel_receivers.ebpf.processes.scanner import Reason
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, Process
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import Readings

ReadingT = TypeVar("ReadingT", SeriesReading, MemoryReading, CpuReading, FailureReading)

Tell = Callable[[int, Descriptor, bytes], None]
"""Takes the process, the metric and the attributes, encoded for its points, of a series that has a value."""

AT_ONCE = 64
"""Series of a batch, where they are of several processes: to parse one and count it takes some 40 us, and others have
their turn on the event loop between batches."""

SCOPE = Scope("otel_zernel_receivers.ebpf")

LAUNCH_LATENCY = metric(
    "zernel.cuda.launch.latency", "s", "histogram", "Time to hand work to the GPU's queue, not to execute it."
)
SYNC_WAIT = metric("zernel.cuda.sync.wait", "s", "histogram", "Time that the host waits for the GPU.")
COPY_LATENCY = metric("zernel.cuda.copy.latency", "s", "histogram", "Duration of copy calls, as the host sees it.")
COPY_SIZE = metric("zernel.cuda.copy.size", "By", "sum", "Bytes copied by calls that succeeded.")
CUDA_ERRORS = metric("zernel.cuda.errors", "{error}", "sum", "Calls that failed.")
MEMORY_USED = metric("zernel.gpu.memory.used", "By", "gauge", "Memory allocated and not freed, as far as seen.")
MEMORY_PEAK = metric("zernel.gpu.memory.peak", "By", "gauge", "The most memory used at once, as far as seen.")
ALLOCATIONS = metric("zernel.gpu.memory.allocations", "{allocation}", "sum", "Allocations that succeeded.")
DATALOADER_WAIT = metric(
    "zernel.dataloader.wait", "s", "histogram", "Time that a training loop waits for its next batch of data."
)
COLLECTIVE_DURATION = metric(
    "zernel.nccl.collective.duration",
    "s",
    "histogram",
    "Duration of collectives, as far as zernel.timing.source can tell.",
)
COLLECTIVE_SIZE = metric("zernel.nccl.collective.size", "By", "sum", "Bytes that collectives were asked to work on.")
NCCL_ERRORS = metric("zernel.nccl.errors", "{error}", "sum", "Calls that failed.")
SYNC_WAITS = metric(
    "zernel.distributed.sync.wait", "s", "histogram", "Sleeps on a futex over 1 us, of threads that make probed calls."
)
OFF_CPU = metric("zernel.process.off_cpu", "s", "sum", "Time off the CPU, of all threads that make probed calls.")
IO_WAIT = metric("zernel.process.io.wait", "s", "sum", "Of that, in uninterruptible sleep: mostly waiting for a disk.")
CPU_BURST = metric("zernel.process.cpu.burst", "s", "gauge", "The last run of a thread until it slept; 0 if none did.")
READ_COUNT = metric("zernel.process.read.count", "{read}", "sum", "System calls that read more than 4 KiB.")
READ_SIZE = metric("zernel.process.read.size", "By", "sum", "Bytes that such system calls read.")
PHASE_ELAPSED = metric(
    "zernel.phase.elapsed", "s", "gauge", "How long a process has been in the phase that it is in now."
)
PROBE_HITS = metric("zernel.probe.hits", "{hit}", "sum", "Probed calls, counted or not.")
PROBE_TIME = metric(
    "zernel.probe.time", "s", "sum", "Time that probes took: hits times what a probe was measured to take."
)
PROBE_SAMPLED = metric(
    "zernel.probe.sampled", "1", "gauge", "Share of the time that calls were watched: counts are scaled by it."
)
PROBE_EXCESS = metric(
    "zernel.probe.excess", "1", "gauge", "What probes that are never sampled take of a CPU beyond max_overhead."
)
PROBE_FLOOR = metric("zernel.probe.floor", "s", "gauge", "What a call that does nothing reads: part of every latency.")
LOST_EVENTS = metric("zernel.ebpf.lost_events", "{event}", "sum", "Events that found no room in the ring buffer.")
LEFT_OUT = metric("zernel.ebpf.left_out", "{item}", "gauge", "Processes and files that the last scan had to leave out.")
MISSING_MARKS = metric(
    "zernel.ebpf.missing_marks", "{mark}", "gauge", "1 for each mark of PyTorch that a process's libraries lack."
)
FREES = metric("zernel.gpu.memory.frees", "{allocation}", "sum", "Allocations that were freed.")


@dataclass(frozen=True, slots=True)
class _Kind:
    """How an operation's series are told."""

    histogram: Descriptor
    attributes: Mapping[str, str] = field(default_factory=dict)
    size: Descriptor | None = None


def _launch(api: str) -> _Kind:
    return _Kind(LAUNCH_LATENCY, {"zernel.cuda.api": api})


def _copy(kind: str) -> _Kind:
    return _Kind(COPY_LATENCY, {"zernel.cuda.copy.kind": kind}, COPY_SIZE)


def _collective(operation: str, timing: str) -> _Kind:
    attributes = {"zernel.nccl.operation": operation, "zernel.timing.source": timing}
    return _Kind(COLLECTIVE_DURATION, attributes, COLLECTIVE_SIZE if timing == HOST_ENQUEUE else None)


_KINDS: dict[int, _Kind] = {
    Operation.RUNTIME_LAUNCH: _launch("runtime"),
    Operation.DRIVER_LAUNCH: _launch("driver"),
    Operation.GRAPH_LAUNCH: _launch("graph"),
    Operation.SYNC: _Kind(SYNC_WAIT),
    Operation.COPY_HOST_TO_HOST: _copy("host_to_host"),
    Operation.COPY_HOST_TO_DEVICE: _copy("host_to_device"),
    Operation.COPY_DEVICE_TO_HOST: _copy("device_to_host"),
    Operation.COPY_DEVICE_TO_DEVICE: _copy("device_to_device"),
    Operation.COPY_DEFAULT: _copy("default"),
    Operation.DATALOADER_WAIT: _Kind(DATALOADER_WAIT),
    Operation.FUTEX_WAIT: _Kind(SYNC_WAITS),
    **{number: _collective(*of_collective) for number, of_collective in COLLECTIVES.items()},
}

# As in driver_types.h and cuda.h; other codes are told by number.
_CUDA_ERRORS = {
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
_NCCL_ERRORS = {
    1: "unhandled_cuda_error",
    2: "system_error",
    3: "internal_error",
    4: "invalid_argument",
    5: "invalid_usage",
    6: "remote_error",
}


class Points:
    """The points of one batch, by metric."""

    def __init__(self, layout: HdrLayout, period: Period, tell: Tell) -> None:
        self._layout = layout
        self._tell = tell
        self._resource = encode_resource({"host.name": host_name()})
        self._period = period
        self._points: defaultdict[Descriptor, list[bytes]] = defaultdict(list)

    def add_series(self, readings: Iterable[SeriesReading], watched: Watched) -> None:
        told = watched.told(one for one in readings if one.operation in _KINDS)
        if not told:
            return
        of_points = [_of_series(*_key(one, watched), HISTOGRAM_ATTRIBUTES) for one in told]
        points = encode_histogram_points(of_points, told, self._layout, self._period)
        for reading, attributes, point in zip(told, of_points, points, strict=True):
            kind = _KINDS[reading.operation]
            self._tell(reading.process.pid, kind.histogram, attributes)
            self._points[kind.histogram].append(point)
            if kind.size:
                attributes = _of_series(*_key(reading, watched), NUMBER_ATTRIBUTES)
                self._add_number_of(reading.process, kind.size, attributes, reading.bytes)

    def add_memory(self, reading: MemoryReading) -> None:
        attributes = _of_device(reading.process.pid, "unknown" if reading.device is None else reading.device)
        self._add_number_of(reading.process, MEMORY_USED, attributes, reading.used)
        self._add_number_of(reading.process, MEMORY_PEAK, attributes, reading.peak)
        if reading.allocations:
            self._add_number_of(reading.process, ALLOCATIONS, attributes, reading.allocations)
        if reading.frees:
            self._add_number_of(reading.process, FREES, attributes, reading.frees)

    def add_cpu(self, reading: CpuReading, cost: Cost) -> None:
        attributes = _of_process(reading.process.pid)
        self._add_number_of(reading.process, PROBE_HITS, attributes, reading.hits)
        self._add_number_of(reading.process, PROBE_TIME, attributes, reading.hits * cost.call_ns / 1e9)
        self._add_number_of(reading.process, OFF_CPU, attributes, reading.off_cpu_ns / 1e9)
        self._add_number_of(reading.process, IO_WAIT, attributes, reading.io_wait_ns / 1e9)
        self._add_number_of(reading.process, CPU_BURST, attributes, reading.last_burst_ns / 1e9)
        if reading.phase_ns:
            attributes = _of_phase(reading.process.pid, reading.phase)
            self._add_number_of(reading.process, PHASE_ELAPSED, attributes, reading.phase_ns / 1e9)
        if reading.reads:
            self._add_number_of(reading.process, READ_COUNT, attributes, reading.reads)
            self._add_number_of(reading.process, READ_SIZE, attributes, reading.bytes_read)

    def add_shares(self, watched: Watched) -> None:
        for group in Group:
            attributes = encode_attributes({"zernel.probe.name": group}, NUMBER_ATTRIBUTES)
            self._add_number(PROBE_SAMPLED, attributes, watched.shares.get(group, 1.0))
        self._add_number(PROBE_EXCESS, b"", watched.excess)

    def add_floor(self, cost: Cost) -> None:
        self._add_number(PROBE_FLOOR, b"", cost.floor_ns / 1e9)

    def add_left_out(self, left_out: Mapping[Reason, int]) -> None:
        for reason in Reason:
            attributes = encode_attributes({"error.type": reason}, NUMBER_ATTRIBUTES)
            self._add_number(LEFT_OUT, attributes, left_out.get(reason, 0))

    def add_failure(self, reading: FailureReading) -> None:
        family, names = (NCCL_ERRORS, _NCCL_ERRORS) if reading.flags & Flag.NCCL else (CUDA_ERRORS, _CUDA_ERRORS)
        attributes = _of_error(reading.process.pid, names.get(reading.code, str(reading.code)))
        self._add_number_of(reading.process, family, attributes, reading.count)

    def add_missing(self, pid: int, mark: Mark) -> None:
        attributes = encode_attributes({"process.pid": pid, "zernel.mark": mark}, NUMBER_ATTRIBUTES)
        self._tell(pid, MISSING_MARKS, attributes)
        self._add_number(MISSING_MARKS, attributes, 1)

    def add_lost_events(self, process: Process, count: int) -> None:
        self._add_number_of(process, LOST_EVENTS, _of_process(process.pid), count)

    def batch(self) -> Batch:
        """All of them."""
        metrics = [encode_metric(family, b"".join(points)) for family, points in self._points.items()]
        count = sum(map(len, self._points.values()))
        return Batch.encoded(metrics=encode_resource_metrics(self._resource, SCOPE, metrics), point_count=count)

    def _add_number_of(self, process: Process, family: Descriptor, attributes: bytes, value: float) -> None:
        self._tell(process.pid, family, attributes)
        self._add_number(family, attributes, value)

    def _add_number(self, family: Descriptor, attributes: bytes, value: float) -> None:
        self._points[family].append(encode_number_point(attributes, value, self._period))


def _key(reading: SeriesReading, watched: Watched) -> tuple[int, int, int, bool]:
    return reading.process.pid, reading.operation, reading.phase, watched.is_sample(reading)


@lru_cache(maxsize=1024)  # by default there are 512 series, some of which have a size as well
def _of_series(pid: int, operation: int, phase: int, is_sampled: bool, field: int) -> bytes:
    attributes: dict[str, str | int] = {
        "process.pid": pid,
        **_KINDS[operation].attributes,
        "zernel.phase": Phase(phase).name.lower(),
    }
    if is_sampled:
        attributes["zernel.sampled"] = True
    return encode_attributes(attributes, field)


@lru_cache(maxsize=512)
def _of_process(pid: int) -> bytes:
    return encode_attributes({"process.pid": pid}, NUMBER_ATTRIBUTES)


@lru_cache(maxsize=512)
def _of_phase(pid: int, phase: int) -> bytes:
    return encode_attributes({"process.pid": pid, "zernel.phase": Phase(phase).name.lower()}, NUMBER_ATTRIBUTES)


@lru_cache(maxsize=512)
def _of_device(pid: int, device: int | str) -> bytes:
    return encode_attributes({"process.pid": pid, "zernel.gpu.index": device}, NUMBER_ATTRIBUTES)


def _of_error(pid: int, error: str) -> bytes:
    return encode_attributes({"process.pid": pid, "error.type": error}, NUMBER_ATTRIBUTES)


def batches_of(
    readings: Readings,
    wanted: Callable[[Process], bool],
    layout: HdrLayout,
    cost: Cost,
    period: Period,
    watched: Watched,
    tell: Tell,
    left_out: Mapping[Reason, int],
    missing: Mapping[int, Collection[Mark]],
) -> list[Batch]:
    """The readings of the processes that are wanted, as metrics of the time of `period`. Batches are small, and all
    points of a process are in one of them. Each series of theirs is told to `tell`."""
    share = _shares(readings, wanted)
    points: defaultdict[int, Points] = defaultdict(lambda: Points(layout, period, tell))
    points[0].add_floor(cost)
    points[0].add_shares(watched)
    points[0].add_left_out(left_out)
    for pid, marks in missing.items():
        for mark in sorted(marks):
            points[0].add_missing(pid, mark)
    for number, series in groupby(_told(readings.series, share), itemgetter(0)):
        points[number].add_series((one for _, one in series), watched)
    for number, memory in _told(readings.memory, share):
        points[number].add_memory(memory)
    for number, cpu in _told(readings.cpu, share):
        points[number].add_cpu(cpu, cost)
    for number, failure in _told(readings.failures, share):
        points[number].add_failure(failure)
    for process, lost in readings.lost_events.items():
        points[share.get(process, 0)].add_lost_events(process, lost)
    return [of_batch.batch() for of_batch in points.values()]


def _shares(readings: Readings, wanted: Callable[[Process], bool]) -> dict[Process, int]:
    """Of each process that is wanted, the number of its batch."""
    series = Counter(reading.process for reading in readings.series)
    others = (reading.process for part in (readings.memory, readings.cpu, readings.failures) for reading in part)
    processes = [process for process in dict.fromkeys((*series, *others)) if wanted(process)]
    before = accumulate((series[process] for process in processes), initial=0)
    return {process: count // AT_ONCE for process, count in zip(processes, before, strict=False)}


def _told(part: Iterable[ReadingT], share: Mapping[Process, int]) -> list[tuple[int, ReadingT]]:
    """The readings of wanted processes with their batches' numbers, by which they are sorted."""
    return sorted(((share[one.process], one) for one in part if one.process in share), key=itemgetter(0))
