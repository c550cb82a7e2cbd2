"""The metrics of the receiver: their attributes, and when they appear. `families` has the names and units."""

from typing import Any

from otel_zernel.component.declaration import DeclaredMetric, by_name
from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.training import semconv
from otel_zernel_receivers.ebpf.emit import families as f

_PID = "process.pid"
_PHASE = semconv.PHASE
_GPU = semconv.GPU_INDEX
_END = ("process.exit.code", "process.signal", "host.name", semconv.RANK)
_CUDA = "for processes that call CUDA"
_NCCL = "for processes that call NCCL"
_WATCHED = "for every watched process"
_READERS = "for processes that read more than 4 KiB at once"
_WORKERS = "for processes with DataLoader workers"
_END_SEEN = "from the first end on"


def _declared(family: Descriptor, when: str, *attributes: str) -> DeclaredMetric:
    kind: Any = family.kind  # `metric` has made it: a gauge, a sum or a histogram
    return DeclaredMetric(family.name, family.unit, kind, family.description, attributes, when)


METRICS = by_name(
    _declared(f.LAUNCH_LATENCY, _CUDA, _PID, semconv.CUDA_API, _PHASE),
    _declared(f.SYNC_WAIT, _CUDA, _PID, _PHASE),
    _declared(f.COPY_LATENCY, _CUDA, _PID, semconv.CUDA_COPY_KIND, _PHASE),
    _declared(f.COPY_SIZE, _CUDA, _PID, semconv.CUDA_COPY_KIND, _PHASE),
    _declared(f.CUDA_ERRORS, "from the first failed call on", _PID, "error.type"),
    _declared(f.MEMORY_USED, "for processes that allocate GPU memory", _PID, _GPU),
    _declared(f.MEMORY_PEAK, "for processes that allocate GPU memory", _PID, _GPU),
    _declared(f.ALLOCATIONS, "after allocations", _PID, _GPU),
    _declared(f.FREES, "after frees", _PID, _GPU),
    _declared(f.COLLECTIVE_ENQUEUE, _NCCL, _PID, semconv.NCCL_OPERATION, _PHASE),
    _declared(f.COLLECTIVE_DURATION, _NCCL, _PID, semconv.NCCL_OPERATION, _PHASE),
    _declared(f.COLLECTIVE_SIZE, _NCCL, _PID, semconv.NCCL_OPERATION, _PHASE),
    _declared(f.NCCL_ERRORS, "from the first failed call on", _PID, "error.type"),
    _declared(f.DATALOADER_WAIT, "for processes with a DataLoader", _PID, _PHASE),
    _declared(f.SYNC_WAITS, "for processes that wait for a futex", _PID, _PHASE),
    _declared(f.PHASE_ELAPSED, "for processes whose phase is known", _PID, _PHASE),
    _declared(f.OFF_CPU, _WATCHED, _PID),
    _declared(f.IO_WAIT, _WATCHED, _PID),
    _declared(f.THREAD_TIME, "for processes that call CUDA or NCCL", _PID, semconv.THREAD_STATE),
    _declared(f.LEAD_THREAD_TIME, "for processes that call CUDA or NCCL", _PID, semconv.THREAD_STATE),
    _declared(f.SAMPLES, "for processes that train", _PID, semconv.THREAD_ID, semconv.ACTIVITY),
    _declared(f.CPU_BURST, _WATCHED, _PID),
    _declared(f.READ_COUNT, _READERS, _PID),
    _declared(f.READ_SIZE, _READERS, _PID),
    _declared(
        f.CPU_TAKEN,
        "for processes whose threads wait for a CPU",
        *(_PID, semconv.CPU_TAKER, semconv.CPU_TAKER_NAME, semconv.CPU_TAKER_CGROUP),
    ),
    _declared(f.CPUS, _WATCHED, _PID),
    _declared(f.RUNNABLE, _WATCHED, _PID),
    _declared(f.MEMORY, _WATCHED, _PID),
    _declared(f.MEMORY_LEFT, "for processes under a memory limit", _PID),
    _declared(f.THROTTLED, "for processes under a CPU quota", _PID),
    _declared(f.PERIODS, "for processes under a CPU quota", _PID),
    _declared(f.THROTTLED_PERIODS, "for processes under a CPU quota", _PID),
    _declared(f.CPU_PRESSURE, "on cgroup v2 with PSI", _PID),
    _declared(f.WORKERS, _WORKERS, _PID),
    _declared(f.WORKER_CPU, _WORKERS, _PID),
    _declared(f.WORKER_IO_WAIT, _WORKERS, _PID),
    _declared(f.WORKER_MEMORY, _WORKERS, _PID),
    _declared(f.WORKER_READ_COUNT, "for workers that read more than 4 KiB at once", _PID),
    _declared(f.WORKER_READ_SIZE, "for workers that read more than 4 KiB at once", _PID),
    _declared(f.WORKER_ENDS, _END_SEEN, *_END),
    _declared(f.PROCESS_ENDS, _END_SEEN, *_END),
    _declared(f.PROBE_HITS, _WATCHED, _PID),
    _declared(f.PROBE_TIME, _WATCHED, _PID),
    _declared(f.PROBE_FLOOR, "always"),
    _declared(f.PROBE_SAMPLED, "always", semconv.PROBE_NAME),
    _declared(f.PROBE_EXCESS, "always"),
    _declared(f.READING_SEQUENCE, "always"),
    _declared(f.LOST_EVENTS, "from the first loss on", _PID),
    _declared(f.LEFT_OUT, "always", "error.type"),
    _declared(f.MISSING_MARKS, "while a mark is missing", _PID, semconv.MARK, semconv.SAMPLED),
)
