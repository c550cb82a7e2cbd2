"""A node for tests of the processor: a tree of /proc, folders of logs, an API server, a kubelet; and batches of it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.testing import make_context
from otel_zernel_processors.kubernetes import KubernetesProcessor
from otel_zernel_processors.kubernetes.seen import plain
from tests import otlp
from tests.libraries.clients.kubernetes.cluster import FakeCluster
from tests.libraries.clients.kubernetes.kubeconfig import write_kubeconfig
from tests.libraries.clients.serving import served
from tests.processors.kubernetes.items import CONTAINER, UID
from tests.processors.kubernetes.tree import ProcTree

GROUP = f"/kubepods/burstable/pod{UID}/{CONTAINER}"


class Node:
    """The files of a node named node-1, and processors that run on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proc = ProcTree(folder / "proc")
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.cluster = FakeCluster()
        self.context = self.new_context()

    def new_context(self) -> Context:
        return make_context("processors", "kubernetes", clock=SystemClock())

    def add_logs(self, name: str = "trainer-0", uid: str = UID) -> None:
        (self.logs / f"train_{name}_{uid}").mkdir()

    def processor(self, environ: Mapping[str, str] | None = None, **options: Any) -> KubernetesProcessor:
        given = {"proc_root": str(self.proc.folder), "pod_logs": str(self.logs), "node": "node-1", **options}
        config = KubernetesProcessor.Config.model_validate(given)
        named = {"ZERNEL_HOST_NAME": "node-1"} if environ is None else environ
        return KubernetesProcessor(config, self.context, named)

    @asynccontextmanager
    async def watching(self, request_timeout: str = "10s", **options: Any) -> AsyncIterator[KubernetesProcessor]:
        """A processor that watches the pods of the cluster."""
        async with served(self.cluster) as port:
            file = self.folder / "kubeconfig"
            write_kubeconfig(file, f"http://127.0.0.1:{port}", {"token": "t0p"})
            async with self.processor(
                api={"kubeconfig": str(file), "request_timeout": request_timeout}, **options
            ) as processor:
                yield processor


def of_process(pid: int, created: str, **more: AttributeValue) -> dict[str, AttributeValue]:
    """The resource of a process, as ebpf and host have it."""
    found: dict[str, AttributeValue] = {"host.name": "node-1", "process.pid": pid, "process.creation.time": created}
    return {**found, **{name.replace("__", "."): value for name, value in more.items()}}


def batch_with(*resources: Mapping[str, AttributeValue]) -> Batch:
    """A batch with a metric, a span and a log record of each resource."""
    metrics, spans, logs = MetricsData(), TracesData(), LogsData()
    for attributes in resources:
        metrics.MergeFrom(otlp.data(otlp.gauge("up", otlp.number(1.0)), resource=attributes))
        spans.MergeFrom(otlp.traces(Span(name="step"), resource=attributes))
        logs.MergeFrom(otlp.logs(LogRecord(), resource=attributes))
    return Batch.from_bytes(
        metrics=metrics.SerializeToString(), spans=spans.SerializeToString(), logs=logs.SerializeToString()
    )


async def named(processor: KubernetesProcessor, *resources: Mapping[str, AttributeValue]) -> list[dict[str, Any]]:
    """The attributes of the resources after the processor. All three signals must agree."""
    batch = batch_with(*resources)
    await processor.prepare(batch)
    [after] = processor.process(batch)
    plains = [plain(resource_metric.resource.attributes) for resource_metric in after.metrics.resource_metrics]
    assert plains == [plain(resource_span.resource.attributes) for resource_span in after.spans.resource_spans]
    assert plains == [plain(resource_log.resource.attributes) for resource_log in after.logs.resource_logs]
    return plains


def added(resource: Mapping[str, AttributeValue], found: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes that were added or changed."""
    return {name: value for name, value in found.items() if resource.get(name) != value}
