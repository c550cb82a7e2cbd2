"""What readings of the series table are as metrics: names, units, attributes."""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

from otel_zernel.batch import Batch
from otel_zernel.points import Attributes, Descriptor, Scope, delimited, encode_resource_metrics, key_values
from otel_zernel_receivers.ebpf.hdr import Layout
from otel_zernel_receivers.ebpf.histograms import HISTOGRAM_DELTA, encode_attributes, encode_histogram_point
from otel_zernel_receivers.ebpf.probes import Operation, Phase
from otel_zernel_receivers.ebpf.table import Reading

SCOPE = Scope("otel_zernel_receivers.ebpf")

_LAUNCH = Descriptor(
    "zernel.cuda.launch.latency", "s", description="Time to hand a kernel to the GPU's queue, not to execute it."
)

_HISTOGRAMS: dict[Operation, tuple[Descriptor, Attributes]] = {
    Operation.RUNTIME_LAUNCH: (_LAUNCH, {"zernel.cuda.api": "runtime"}),
    Operation.DRIVER_LAUNCH: (_LAUNCH, {"zernel.cuda.api": "driver"}),
    Operation.GRAPH_LAUNCH: (_LAUNCH, {"zernel.cuda.api": "graph"}),
}


def batch_of(readings: Iterable[Reading], layout: Layout, start_ns: int, end_ns: int) -> Batch:
    """The readings as delta metrics of the time from `start_ns` to `end_ns`, Unix time."""
    points: defaultdict[Descriptor, list[bytes]] = defaultdict(list)
    for reading in readings:
        if reading.operation in _HISTOGRAMS and len(reading.counts):
            descriptor, _ = _HISTOGRAMS[Operation(reading.operation)]
            attributes = _attributes(reading.process.pid, reading.operation, reading.phase)
            points[descriptor].append(encode_histogram_point(attributes, reading, layout, start_ns, end_ns))
    metrics = [_histogram(descriptor, encoded) for descriptor, encoded in points.items()]
    if not metrics:
        return Batch()
    return Batch.encoded(
        metrics=encode_resource_metrics(b"", SCOPE, metrics), point_count=sum(map(len, points.values()))
    )


@lru_cache(maxsize=4096)
def _attributes(pid: int, operation: int, phase: int) -> bytes:
    _, of_operation = _HISTOGRAMS[Operation(operation)]
    attributes = {"process.pid": pid, **of_operation, "zernel.phase": Phase(phase).name.lower()}
    return encode_attributes([pair.SerializeToString() for pair in key_values(attributes)])


def _histogram(descriptor: Descriptor, points: list[bytes]) -> bytes:
    texts = (descriptor.name, descriptor.description, descriptor.unit)
    header = b"".join(delimited(number, text.encode()) for number, text in enumerate(texts, 1))
    return delimited(2, header + delimited(9, b"".join(points) + HISTOGRAM_DELTA))
