"""A reading of the counters of the ranks and of the receiver, as `ebpf` emits it."""

import random
from collections.abc import Iterator

from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, ResourceMetrics

from examples.simulated_job.encoding import Attributes, Reading, durations, number, of_resource
from examples.simulated_job.training import BUCKET_BYTES, BUCKETS, LAUNCHES, Rank, Step, resource_of

SCOPE = "otel_zernel_receivers.ebpf"
BATCH_BYTES = 48 << 20


def of_rank(rank: Rank, reading: Reading) -> ResourceMetrics:
    """The counters of a rank since the last reading."""
    parts = (_cuda, _collectives, _input)
    metrics = (metric for part in parts for metric in part(rank, rank.steps, reading))
    return of_resource(resource_of(rank), SCOPE, metrics)


def of_host(host: str, reading: Reading, sequence: int) -> ResourceMetrics:
    """The points about the receiver itself, and the traffic of the host."""
    resource = {"host.name": host, "service.name": "otel-zernel", "service.instance.id": host}
    return of_resource(resource, SCOPE, _of_receiver(reading, sequence))


def of_ends(reading: Reading) -> ResourceMetrics:
    """The counts of ends: a process of rank 3 was killed before this job."""
    resource = {"host.name": "node-0", "service.name": "pretrain", "service.instance.id": "node-0"}
    end: Attributes = {"process.signal": "SIGKILL", "host.name": "node-0", "zernel.rank": 3}
    return of_resource(resource, SCOPE, [number(reading, "zernel.process.ends", "{process}", 1, end, "delta")])


def _cuda(rank: Rank, steps: list[Step], reading: Reading) -> Iterator[Metric]:
    pid: Attributes = {"process.pid": rank.pid}
    gpu = {**pid, "zernel.gpu.index": rank.gpu}
    launches = [random.lognormvariate(-12, 0.4) for _ in range(LAUNCHES * len(steps))]
    waits = [0.9 * step.optimizer for step in steps]
    computes = {**pid, "zernel.phase": "gpu_compute"}
    copies = {**computes, "zernel.cuda.copy.kind": "host_to_device"}
    yield durations(reading, "zernel.cuda.launch.latency", launches, {**computes, "zernel.cuda.api": "runtime"})
    yield durations(reading, "zernel.cuda.sync.wait", waits, {**pid, "zernel.phase": "optimizer_step"})
    yield number(reading, "zernel.cuda.copy.size", "By", len(steps) * BATCH_BYTES, copies, "delta")
    yield number(reading, "zernel.cuda.memory.used", "By", 61e9 + rank.number * 1e7, gpu)
    yield number(reading, "zernel.cuda.memory.peak", "By", 66e9, gpu)
    yield number(reading, "zernel.probe.time", "s", 0.0007 * len(steps), pid, "delta")


def _collectives(rank: Rank, steps: list[Step], reading: Reading) -> Iterator[Metric]:
    labels: Attributes = {
        "process.pid": rank.pid,
        "zernel.nccl.operation": "all_reduce",
        "zernel.phase": "gpu_compute",
    }
    lasts = [step.wait + 0.003 for step in steps for _ in range(BUCKETS)]
    calls = [random.uniform(7e-6, 12e-6) for _ in lasts]
    yield durations(reading, "zernel.nccl.collective.duration", lasts, labels)
    yield durations(reading, "zernel.nccl.collective.enqueue.duration", calls, labels)
    yield number(reading, "zernel.nccl.collective.size", "By", len(lasts) * BUCKET_BYTES, labels, "delta")
    error: Attributes = {"process.pid": rank.pid, "error.type": "ncclRemoteError"}
    yield number(reading, "zernel.nccl.errors", "{error}", 0, error, "delta")


def _input(rank: Rank, steps: list[Step], reading: Reading) -> Iterator[Metric]:
    pid: Attributes = {"process.pid": rank.pid}
    loads = [step.load for step in steps]
    yield durations(reading, "zernel.dataloader.wait", loads, {**pid, "zernel.phase": "data_loading"})
    yield number(reading, "zernel.dataloader.workers", "{process}", 4, pid)
    read = len(steps) * BATCH_BYTES
    yield number(reading, "zernel.dataloader.worker.read.size", "By", read, pid, "delta")


def _of_receiver(reading: Reading, sequence: int) -> Iterator[Metric]:
    yield number(reading, "zernel.reading.sequence", "{reading}", sequence)
    for group in ("launch", "copy_sync", "collective", "operators"):
        yield number(reading, "zernel.probe.sampled", "1", 1.0, {"zernel.probe.name": group})
    yield number(reading, "zernel.ebpf.left_out", "{item}", 2, {"error.type": "permission"})
    yield number(reading, "zernel.ebpf.lost_events", "{event}", 0, kind="delta")
    for direction in ("transmit", "receive"):
        labels: Attributes = {"network.interface.name": "eth0", "network.io.direction": direction}
        yield number(reading, "system.network.io", "By", int(random.uniform(2e9, 3e9)), labels, "delta")
