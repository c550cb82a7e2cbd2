"""Reads the points of metrics that phases use, whichever receiver measured them."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.cpu_takers import CpuTaker, TakerKind

KERNEL = frozenset(
    {
        semconv.PROCESS_IO_WAIT,
        semconv.PROCESS_CPU_BURST,
        semconv.DISTRIBUTED_SYNC_WAIT,
        semconv.NCCL_COLLECTIVE_ENQUEUE_DURATION,
        semconv.NCCL_COLLECTIVE_DURATION,
        semconv.CUDA_SYNC_WAIT,
        semconv.CUDA_LAUNCH_LATENCY,
        semconv.CUDA_MEMORY_USED,
    }
)
"""Signals of processes that the kernel counts; docs/development/spans.md defines them."""
NVML = frozenset({semconv.GPU_PROCESS_UTILIZATION, semconv.GPU_PROCESS_MEMORY_USAGE})
"""Signals of processes that NVML reports."""
CLOCKS = frozenset({semconv.GPU_CLOCK, semconv.GPU_CLOCK_LIMIT, semconv.GPU_THROTTLE_ACTIVE})
"""How fast the cores of a GPU run."""
GPU = frozenset({"hw.energy", "hw.power", "hw.gpu.utilization"}) | CLOCKS
THREAD_TIME = semconv.CUDA_LEAD_THREAD_TIME
"""The time of the thread that calls CUDA most, by `zernel.thread.state`."""
THROTTLED_TIME = semconv.CGROUP_CPU_THROTTLED_TIME
"""For how long quotas stopped the control group of a process."""
CPU_TAKEN_TIME = semconv.PROCESS_CPU_TAKEN_TIME
"""For how long others had the CPUs that its threads waited for."""
PROBE_HITS, PROBE_TIME = semconv.PROBE_HITS, semconv.PROBE_TIME
"""How often the receiver's probes were hit, and the time that they took."""
PROCESS_TIMES = frozenset({THROTTLED_TIME, CPU_TAKEN_TIME, PROBE_HITS, PROBE_TIME})
"""Counters of a process that divide the time of its threads."""
LOSSES = semconv.EBPF_LOST_EVENTS
READING = semconv.READING_SEQUENCE
"""One point comes with every reading of the receiver's counters."""
MISSING_MARKS = semconv.EBPF_MISSING_MARKS
"""Functions that phases need and a process's PyTorch does not have; docs/development/spans.md lists them."""
FACTS = frozenset(
    {
        semconv.DATALOADER_WORKERS,
        semconv.DATALOADER_WORKER_CPU_TIME,
        semconv.DATALOADER_WORKER_IO_WAIT,
        semconv.DATALOADER_WORKER_MEMORY_ANONYMOUS,
        semconv.PROCESS_CPUS,
        semconv.PROCESS_MEMORY_ANONYMOUS,
        semconv.PROCESS_MEMORY_LEFT,
        semconv.PROCESS_THREADS_RUNNABLE,
        semconv.PROCESS_CPU_TAKEN_TIME,
    }
)
"""Facts about a process that decide which cause its waits have."""
_LEVELS = frozenset({semconv.GPU_PROCESS_UTILIZATION, "hw.gpu.utilization"})
"""Gauges whose staleness points matter: without them, their last value would still count for a while."""
_KNOWN = KERNEL | NVML | GPU | FACTS | PROCESS_TIMES | {THREAD_TIME, LOSSES, READING, MISSING_MARKS}
_DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_ENGINES = ("", "sm")
"""Values of `zernel.gpu.engine` for the use of the whole GPU."""
_TAKERS = frozenset(TakerKind)
_STATES = (semconv.THREAD_STATE, semconv.GPU_THROTTLE_REASON)
_DOMAINS = ("", "sm")
"""Values of `zernel.gpu.clock.domain` for the cores of a GPU."""
_TASKS = ("", "general")
"""Values of `hw.gpu.task` for the use of the whole GPU."""

Scalars = Mapping[str, str | int | float]


class InputPoint(NamedTuple):
    """One point of a metric. `value` is the value of a number point, or the count of a histogram point."""

    name: str
    start: int
    """The start of the point, ns since 1970; 0 if it has none."""
    time: int
    """ns since 1970."""
    value: float
    """NaN for the end of a series of levels."""
    host: str
    pid: int | None
    gpu: str
    """The index of the GPU on its host; empty if unknown."""
    delta: bool
    """Whether the temporality is delta; else it is cumulative, or the point is a gauge's."""
    resource: Resource
    mark: str = ""
    """`zernel.mark` of a point of `zernel.ebpf.missing_marks`."""
    state: str = ""
    """`zernel.thread.state` of a point of `zernel.cuda.lead_thread.time`, and `zernel.gpu.throttle.reason`."""
    taker: CpuTaker = CpuTaker(TakerKind.OTHER)
    """Of a point of `zernel.process.cpu.taken.time`: who had the CPU."""
    is_sample: bool = False
    """Whether it has `zernel.sampled`: some calls were not probed."""


def input_points(metrics: MetricsData) -> Iterator[InputPoint]:
    """The points of the metrics that phases use. Points without a recorded or finite value are skipped.

    Staleness points of the GPU's levels are not: their value is NaN.
    """
    for resource in metrics.resource_metrics:
        named = None
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name in _KNOWN:
                    named = scalars(resource.resource.attributes) if named is None else named
                    yield from _points_of(metric, named, resource.resource)


def scalars(attributes: Any) -> dict[str, str | int | float]:
    """OTLP attributes as a dict. A value that is neither text nor a number becomes the empty string."""
    return {pair.key: _scalar(pair) for pair in attributes}


def _scalar(pair: KeyValue) -> str | int | float:
    kind = pair.value.WhichOneof("value")
    return getattr(pair.value, kind) if kind in ("string_value", "int_value", "double_value") else ""


def _taker(named: Scalars) -> CpuTaker:
    kind = named.get(semconv.CPU_TAKER)
    return CpuTaker(TakerKind(kind) if kind in _TAKERS else TakerKind.OTHER, str(named.get(semconv.CPU_TAKER_NAME, "")))


def _is_sample(attributes: Any) -> bool:
    return any(pair.key == semconv.SAMPLED and pair.value.bool_value for pair in attributes)


def _points_of(metric: Any, of_resource: Scalars, resource: Resource) -> Iterator[InputPoint]:
    data = getattr(metric, metric.WhichOneof("data") or "gauge")
    delta = getattr(data, "aggregation_temporality", None) == _DELTA
    for point in points(metric):
        named = {**of_resource, **scalars(point.attributes)}
        of_whole_gpu = (
            named.get(semconv.GPU_ENGINE, "") in _ENGINES
            and named.get("hw.gpu.task", "") in _TASKS
            and named.get(semconv.GPU_CLOCK_DOMAIN, "") in _DOMAINS
        )
        value = math.nan if metric.name in _LEVELS and has_no_value(point) else _value(point)
        if value is None or not of_whole_gpu:
            continue
        pid, index = named.get("process.pid"), named.get(semconv.GPU_INDEX, "")
        yield InputPoint(
            metric.name,
            point.start_time_unix_nano,
            point.time_unix_nano,
            value,
            str(named.get("host.name", "")),
            pid if isinstance(pid, int) else None,
            str(index),
            delta,
            resource,
            str(named.get(semconv.MARK, "")),
            next((str(named[key]) for key in _STATES if key in named), ""),
            _taker(named),
            _is_sample(point.attributes),
        )


def _value(point: Any) -> float | None:
    if has_no_value(point):  # the series has ended: it must not revive its process
        return None
    if hasattr(point, "as_double"):
        kind = point.WhichOneof("value")
        value = float(getattr(point, kind)) if kind else math.nan
        return value if math.isfinite(value) else None
    return float(point.count)
