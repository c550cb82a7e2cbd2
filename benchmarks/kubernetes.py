"""The kubernetes processor: a new process, a known one, and the list of a node's pods."""

import asyncio
import json
import subprocess
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from benchmarks import BenchmarkRow, seconds
from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Processor
from otel_zernel.otlp.points import AttributeValue, key_values
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_processors.kubernetes import KubernetesProcessor
from otel_zernel_processors.kubernetes.pods.pod import pod_of
from otel_zernel_processors.kubernetes.pods.pod_table import PodTable
from otel_zernel_processors.resource import ResourceProcessor

PROCESSES, REPEATS = 50, 50
PODS, PAGE = 1000, 50
HOLD_BAR_MS = 10.0


def run() -> list[BenchmarkRow]:
    """Processes of this machine, in no pod: all of the work but the names. Pods as large as real ones."""
    return [*asyncio.run(_processes()), *_pods()]


async def _processes() -> list[BenchmarkRow]:
    options = {"node": "node-1", "pod_logs": None}
    config = KubernetesProcessor.Config.model_validate(options)
    context = make_context("processors", "kubernetes", clock=SystemClock())
    plain = ResourceProcessor.Config.model_validate({"attributes": [{"key": "k8s.node.name", "value": "node-1"}]})
    other = ResourceProcessor(plain, make_context("processors", "resource"))
    with _children() as pids:
        encoded = _metrics(pids)
        async with KubernetesProcessor(config, context, {"ZERNEL_HOST_NAME": "node-1"}) as processor:
            first = await _spent(processor, encoded)
            known = min([await _spent(processor, encoded) for _ in range(REPEATS)])
    resource = min([await _spent(other, encoded) for _ in range(REPEATS)])
    ratio = known / resource
    return [
        BenchmarkRow("kubernetes: a new process", f"{first / PROCESSES * 1e6:.0f} us"),
        BenchmarkRow("kubernetes: a known process", f"{known / PROCESSES * 1e6:.1f} us, {ratio:.1f} x resource"),
    ]


@contextmanager
def _children() -> Iterator[list[int]]:
    children = [subprocess.Popen(["sleep", "60"]) for _ in range(PROCESSES)]
    try:
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def _metrics(pids: list[int]) -> bytes:
    created = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    metrics = MetricsData()
    for pid in pids:
        attributes: dict[str, AttributeValue] = {
            "host.name": "node-1",
            "process.pid": pid,
            "process.creation.time": created,
            "process.executable.name": "python3",
            "service.name": "unknown_service:python3",
            "service.instance.id": f"node-1/{pid}",
            "zernel.rank": 1,
            "zernel.world_size": 8,
        }
        resource = Resource(attributes=key_values(attributes))
        metric = metrics.resource_metrics.add(resource=resource).scope_metrics.add().metrics.add(name="up")
        metric.gauge.data_points.add(as_double=1)
    return metrics.SerializeToString()


async def _spent(processor: Processor, encoded: bytes) -> float:
    """Seconds for one batch, which is parsed before."""
    batch = Batch.from_bytes(metrics=encoded)
    _ = batch.metrics
    start = time.perf_counter()
    await processor.prepare(batch)
    for _ in processor.process(batch):
        pass
    return time.perf_counter() - start


def _pods() -> list[BenchmarkRow]:
    table = PodTable(FakeClock().monotonic)
    table.adopt(PODS, 300)
    pages = [json.dumps({"items": [_pod(first + n) for n in range(PAGE)]}) for first in range(0, PODS, PAGE)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for page in pages:
        _put(table, page)
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    longest = max(min(seconds(partial(_put, table, page)) for _ in range(5)) for page in pages) * 1e3
    bar = f"<= {HOLD_BAR_MS:g} ms"
    return [
        BenchmarkRow("kubernetes: a page of 50 pods", f"{longest:.1f} ms", bar, longest <= HOLD_BAR_MS),
        BenchmarkRow("kubernetes: memory", f"{held / PODS / 1e3:.1f} kB a pod"),
    ]


def _put(table: PodTable, page: str) -> None:
    for item in json.loads(page)["items"]:
        table.put(pod_of(item))


def _pod(number: int) -> dict[str, Any]:
    """About 7 kB of JSON, as an API server sends a pod with two containers and its managed fields."""
    name = f"trainer-{number}"
    managed: dict[str, Any] = {f"f:field-{n}": {f"f:part-{m}": {} for m in range(8)} for n in range(24)}
    container = {
        "name": "worker",
        "image": "registry/train:1",
        "env": [{"name": f"V{n}", "value": "x" * 20} for n in range(20)],
    }
    state = {"name": "worker", "containerID": f"containerd://{number:064x}", "ready": True, "state": {"running": {}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"{number:08x}-1111-4222-8333-444455556666",
            "labels": {"jobset.sigs.k8s.io/jobset-name": "llama", **{f"label-{n}": f"value-{n}" for n in range(10)}},
            "annotations": {f"annotation-{n}": "x" * 40 for n in range(5)},
            "ownerReferences": [{"kind": "Job", "name": "llama-0", "uid": "u"}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": managed}],
        },
        "spec": {
            "nodeName": "node-1",
            "containers": [container, container],
            "volumes": [{"name": f"v{n}"} for n in range(5)],
        },
        "status": {
            "phase": "Running",
            "containerStatuses": [state],
            "conditions": [{"type": f"c{n}"} for n in range(5)],
        },
    }
