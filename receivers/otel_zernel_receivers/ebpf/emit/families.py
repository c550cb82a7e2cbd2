"""The metrics that the receiver emits, and the metrics that each operation is counted in."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.emit.encoding import metric
from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES, HOST_ENQUEUE, Operation

LAUNCH_LATENCY = metric(
    semconv.CUDA_LAUNCH_LATENCY, "s", "histogram", "Time to put work into the GPU's queue, not to execute it."
)
SYNC_WAIT = metric(semconv.CUDA_SYNC_WAIT, "s", "histogram", "Time that the host waits for the GPU.")
COPY_LATENCY = metric(semconv.CUDA_COPY_LATENCY, "s", "histogram", "Duration of copy calls on the host.")
COPY_SIZE = metric(semconv.CUDA_COPY_SIZE, "By", "sum", "Bytes copied by successful calls.")
CUDA_ERRORS = metric(semconv.CUDA_ERRORS, "{error}", "sum", "CUDA calls that failed.")
MEMORY_USED = metric(
    semconv.CUDA_MEMORY_USED,
    "By",
    "gauge",
    "GPU memory that the process allocated and did not free since the receiver attached.",
)
MEMORY_PEAK = metric(
    semconv.CUDA_MEMORY_PEAK, "By", "gauge", "Highest `zernel.cuda.memory.used` since the receiver attached."
)
ALLOCATIONS = metric(semconv.CUDA_MEMORY_ALLOCATIONS, "{allocation}", "sum", "Successful allocations.")
FREES = metric(semconv.CUDA_MEMORY_FREES, "{allocation}", "sum", "Allocations that were freed.")
DATALOADER_WAIT = metric(
    semconv.DATALOADER_WAIT, "s", "histogram", "Time that a training loop waits for its next batch of data."
)
COLLECTIVE_ENQUEUE = metric(
    semconv.NCCL_COLLECTIVE_ENQUEUE_DURATION, "s", "histogram", "Time to put collectives into the GPU's queue."
)
COLLECTIVE_DURATION = metric(
    semconv.NCCL_COLLECTIVE_DURATION,
    "s",
    "histogram",
    "Time from the call of a collective to the end of the next wait for the GPU: at least its duration.",
)
COLLECTIVE_SIZE = metric(semconv.NCCL_COLLECTIVE_SIZE, "By", "sum", "Bytes passed to collectives.")
NCCL_ERRORS = metric(semconv.NCCL_ERRORS, "{error}", "sum", "NCCL calls that failed.")
SYNC_WAITS = metric(
    semconv.DISTRIBUTED_SYNC_WAIT, "s", "histogram", "Futex waits longer than 1 us in threads that make probed calls."
)
OFF_CPU = metric(semconv.PROCESS_OFF_CPU, "s", "sum", "Time off the CPU, of all threads that make probed calls.")
IO_WAIT = metric(
    semconv.PROCESS_IO_WAIT, "s", "sum", "Part of the time off the CPU in uninterruptible sleep, mostly disk waits."
)
THREAD_TIME = metric(
    semconv.CUDA_THREAD_TIME, "s", "sum", "Time of all threads that call CUDA or NCCL, by their state."
)
LEAD_THREAD_TIME = metric(
    semconv.CUDA_LEAD_THREAD_TIME,
    "s",
    "sum",
    "The same of the thread that spent most time in these calls since the last reading.",
)
SAMPLES = metric(
    semconv.SAMPLES,
    "{sample}",
    "sum",
    "Samples of the code that threads run on a CPU; their ratios divide the thread's time on the CPU.",
)
CPU_BURST = metric(
    semconv.PROCESS_CPU_BURST, "s", "gauge", "Length of a thread's last run before it slept; 0 if none slept."
)
CPU_TAKEN = metric(
    semconv.PROCESS_CPU_TAKEN_TIME,
    "s",
    "sum",
    "Time in which threads waited for a CPU, by the process that had it and what that is to them.",
)
CPUS = metric(semconv.PROCESS_CPUS, "{cpu}", "gauge", "CPUs that the process may use, by affinity and quota.")
MEMORY = metric(
    semconv.PROCESS_MEMORY_ANONYMOUS, "By", "gauge", "Memory of the process that is no copy of a file, and resident."
)
MEMORY_LEFT = metric(
    semconv.PROCESS_MEMORY_LEFT, "By", "gauge", "Memory that the smallest limit of its control groups leaves."
)
RUNNABLE = metric(semconv.PROCESS_THREADS_RUNNABLE, "{thread}", "gauge", "Threads that run, or wait for a CPU.")
THROTTLED = metric(
    semconv.CGROUP_CPU_THROTTLED_TIME, "s", "sum", "Time for which CPU quotas stopped the control group."
)
PERIODS = metric(semconv.CGROUP_CPU_PERIODS, "{period}", "sum", "Periods of the CPU quota.")
THROTTLED_PERIODS = metric(
    semconv.CGROUP_CPU_THROTTLED_PERIODS, "{period}", "sum", "Periods in which the quota stopped the group."
)
CPU_PRESSURE = metric(
    semconv.CGROUP_CPU_PRESSURE, "s", "sum", "Time in which a thread of the control group waited for a CPU (PSI)."
)
WORKERS = metric(semconv.DATALOADER_WORKERS, "{process}", "gauge", "Worker processes of a training process.")
WORKER_CPU = metric(semconv.DATALOADER_WORKER_CPU_TIME, "s", "sum", "CPU time of all workers of a process.")
WORKER_IO_WAIT = metric(
    semconv.DATALOADER_WORKER_IO_WAIT, "s", "sum", "Uninterruptible sleep of the workers' threads that read."
)
WORKER_MEMORY = metric(
    semconv.DATALOADER_WORKER_MEMORY_ANONYMOUS,
    "By",
    "gauge",
    "Memory of all workers that is no copy of a file, and resident.",
)
WORKER_READ_COUNT = metric(
    semconv.DATALOADER_WORKER_READ_COUNT, "{read}", "sum", "System calls of workers that read more than 4 KiB."
)
WORKER_READ_SIZE = metric(semconv.DATALOADER_WORKER_READ_SIZE, "By", "sum", "Bytes read by these system calls.")
WORKER_ENDS = metric(
    semconv.DATALOADER_WORKER_ENDS, "{process}", "sum", "Workers that ended, by exit code or by the signal's name."
)
PROCESS_ENDS = metric(
    semconv.PROCESS_ENDS, "{process}", "sum", "Watched processes that ended, by exit code or by the signal's name."
)
READ_COUNT = metric(semconv.PROCESS_READ_COUNT, "{read}", "sum", "System calls that read more than 4 KiB.")
READ_SIZE = metric(semconv.PROCESS_READ_SIZE, "By", "sum", "Bytes read by system calls that read more than 4 KiB.")
PHASE_ELAPSED = metric(semconv.PHASE_ELAPSED, "s", "gauge", "Time since the process entered its current phase.")
PROBE_HITS = metric(semconv.PROBE_HITS, "{hit}", "sum", "Probed calls, counted or not.")
PROBE_TIME = metric(
    semconv.PROBE_TIME,
    "s",
    "sum",
    "Time that probes took: an estimate from their hits and the costs measured at start.",
)
PROBE_SAMPLED = metric(
    semconv.PROBE_SAMPLED, "1", "gauge", "Ratio of the time with the probes on; counts are scaled by it."
)
PROBE_EXCESS = metric(
    semconv.PROBE_EXCESS, "1", "gauge", "CPU share of probes above `max_overhead` that sampling cannot reduce."
)
PROBE_FLOOR = metric(
    semconv.PROBE_FLOOR, "s", "gauge", "Latency recorded for a call that does nothing; part of every latency."
)
READING_SEQUENCE = metric(
    semconv.READING_SEQUENCE, "{reading}", "gauge", "Number of this reading since the receiver started, from 1."
)
LOST_EVENTS = metric(semconv.EBPF_LOST_EVENTS, "{event}", "sum", "Events lost because the ring buffer was full.")
LEFT_OUT = metric(semconv.EBPF_LEFT_OUT, "{item}", "gauge", "Processes and files that the last scan skipped.")
MISSING_MARKS = metric(
    semconv.EBPF_MISSING_MARKS, "{mark}", "gauge", "1 for each mark of PyTorch that a process's libraries do not have."
)


@dataclass(frozen=True, slots=True)
class OperationFamilies:
    """The metrics that calls of one operation are counted in."""

    duration: Descriptor
    """A histogram."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """The point attributes that name the operation."""
    size: Descriptor | None = None
    """A sum of bytes, for operations that have them."""


def _launch(api: str) -> OperationFamilies:
    return OperationFamilies(LAUNCH_LATENCY, {semconv.CUDA_API: api})


def _copy(direction: str) -> OperationFamilies:
    return OperationFamilies(COPY_LATENCY, {semconv.CUDA_COPY_KIND: direction}, COPY_SIZE)


def _collective(operation: str, timing: str) -> OperationFamilies:
    attributes = {semconv.NCCL_OPERATION: operation}
    if timing == HOST_ENQUEUE:
        return OperationFamilies(COLLECTIVE_ENQUEUE, attributes, COLLECTIVE_SIZE)
    return OperationFamilies(COLLECTIVE_DURATION, attributes)


OPERATION_FAMILIES: dict[int, OperationFamilies] = {
    Operation.RUNTIME_LAUNCH: _launch("runtime"),
    Operation.DRIVER_LAUNCH: _launch("driver"),
    Operation.GRAPH_LAUNCH: _launch("graph"),
    Operation.SYNC: OperationFamilies(SYNC_WAIT),
    Operation.COPY_HOST_TO_HOST: _copy("host_to_host"),
    Operation.COPY_HOST_TO_DEVICE: _copy("host_to_device"),
    Operation.COPY_DEVICE_TO_HOST: _copy("device_to_host"),
    Operation.COPY_DEVICE_TO_DEVICE: _copy("device_to_device"),
    Operation.COPY_DEFAULT: _copy("default"),
    Operation.DATALOADER_WAIT: OperationFamilies(DATALOADER_WAIT),
    Operation.FUTEX_WAIT: OperationFamilies(SYNC_WAITS),
    **{number: _collective(*names) for number, names in COLLECTIVES.items()},
}
"""Operations that are missing here have no metrics."""
