"""What metrics say of processes and GPUs, whoever measured it: the points that phases are joined with."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import points
from otel_zernel.otlp.staleness import has_no_value

KERNEL = frozenset(
    {
        "zernel.process.io.wait",
        "zernel.process.cpu.burst",
        "zernel.distributed.sync.wait",
        "zernel.nccl.collective.duration",
        "zernel.cuda.sync.wait",
        "zernel.cuda.launch.latency",
        "zernel.gpu.memory.used",
    }
)
"""Of the eBPF receiver: the signals of processes; see docs/spans.md."""
NVML = frozenset({"zernel.gpu.process.utilization", "zernel.gpu.process.memory.usage"})
GPU = frozenset({"hw.energy", "hw.power", "hw.gpu.utilization"})
LOSSES = "zernel.ebpf.lost_events"
READING = "zernel.probe.floor"
"""Comes with every reading of the eBPF receiver's counters."""
MISSING = "zernel.ebpf.missing_marks"
"""The functions of PyTorch that phases are made of and a process's libraries lack; see docs/spans.md."""
_KNOWN = KERNEL | NVML | GPU | {LOSSES, READING, MISSING}
_ENGINES = ("", "sm")
_TASKS = ("", "general")

Scalars = Mapping[str, str | int | float]


class Observation(NamedTuple):
    """One point: `value` is a number point's value, or a histogram's count."""

    name: str
    start: int
    """Since when the value counts, ns since 1970; 0 if the point does not say."""
    time: int
    """ns since 1970."""
    value: float
    host: str
    pid: int | None
    gpu: str
    """The GPU's index on its host; empty if unknown."""
    delta: bool
    """Whether the value counts since the last point, rather than since the start."""
    resource: Resource
    mark: str = ""
    """Of PyTorch: which one is missing."""


def observations(metrics: MetricsData) -> Iterator[Observation]:
    """The points that say something about phases."""
    for resource in metrics.resource_metrics:
        named = None
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                if metric.name in _KNOWN:
                    named = scalars(resource.resource.attributes) if named is None else named
                    yield from _observed(metric, named, resource.resource)


def scalars(attributes: Any) -> dict[str, str | int | float]:
    """The attributes that are text or numbers."""
    return {pair.key: _scalar(pair) for pair in attributes}


def _scalar(pair: KeyValue) -> str | int | float:
    kind = pair.value.WhichOneof("value")
    return getattr(pair.value, kind) if kind in ("string_value", "int_value", "double_value") else ""


def _observed(metric: Any, resource: Scalars, origin: Resource) -> Iterator[Observation]:
    data = getattr(metric, metric.WhichOneof("data") or "gauge")
    delta = getattr(data, "aggregation_temporality", 2) == 1
    for point in points(metric):
        named = {**resource, **scalars(point.attributes)}
        of_whole = named.get("zernel.gpu.engine", "") in _ENGINES and named.get("hw.gpu.task", "") in _TASKS
        value = _value(point)
        if value is None or not of_whole:
            continue
        pid, index = named.get("process.pid"), named.get("zernel.gpu.index", "")
        yield Observation(
            metric.name,
            point.start_time_unix_nano,
            point.time_unix_nano,
            value,
            str(named.get("host.name", "")),
            pid if isinstance(pid, int) else None,
            str(index),
            delta,
            origin,
            str(named.get("zernel.mark", "")),
        )


def _value(point: Any) -> float | None:
    if has_no_value(point):  # the series has ended; its process is not to be met anew
        return None
    if hasattr(point, "as_double"):
        kind = point.WhichOneof("value")
        value = float(getattr(point, kind)) if kind else math.nan
        return value if math.isfinite(value) else None
    return float(point.count)
