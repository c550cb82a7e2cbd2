"""The metrics of the zernel receiver."""

from typing import Any

from otel_zernel.component.declaration import DeclaredMetric, by_name
from otel_zernel.otlp.points import Descriptor
from otel_zernel_libraries.training import semconv

MEMORY_USED = Descriptor(
    semconv.CUDA_MEMORY_USED,
    "By",
    "gauge",
    "GPU memory that the process allocated and did not free since the receiver attached.",
)
MEMORY_PEAK = Descriptor(
    semconv.CUDA_MEMORY_PEAK, "By", "gauge", "Highest `zernel.cuda.memory.used` since the receiver attached."
)
LAST_UPDATE = Descriptor("zernel.feed.last_update", "s", "gauge", "Unix time of the newest data in the feed.")
LAUNCH_LATENCY = Descriptor(
    "zernel.cuda.launch.latency.percentiles", "s", "summary", "Quantiles of the launch latency of all processes."
)
COLLECTIVE_DURATION = Descriptor(
    "zernel.nccl.collective.duration.percentiles",
    "s",
    "summary",
    "Quantiles of the duration of the collectives of all processes.",
)
DATALOADER_WAIT = Descriptor(
    "zernel.dataloader.wait.percentiles", "s", "summary", "Quantiles of the waits for data of all processes."
)

_PROCESS = ("process.pid", semconv.GPU_INDEX)


def _declared(of: Descriptor, when: str, *attributes: str) -> DeclaredMetric:
    kind: Any = "any" if of.kind == "summary" else of.kind
    return DeclaredMetric(of.name, of.unit, kind, of.description, attributes, when)


METRICS = by_name(
    _declared(MEMORY_USED, "for processes in the feed", *_PROCESS),
    _declared(MEMORY_PEAK, "for processes in the feed", *_PROCESS),
    _declared(LAUNCH_LATENCY, "while the feed has a value above 0"),
    _declared(COLLECTIVE_DURATION, "while the feed has a value above 0", semconv.NCCL_OPERATION),
    _declared(DATALOADER_WAIT, "while the feed has a value above 0"),
    _declared(LAST_UPDATE, "once the feed has data"),
)
