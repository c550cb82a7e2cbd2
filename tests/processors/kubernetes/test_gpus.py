"""GPUs and pods: the metric that joins them, and the points of processes."""

from collections.abc import Mapping
from typing import Any

import pytest

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue
from otel_zernel.otlp.staleness import has_no_value
from otel_zernel.testing import until
from otel_zernel_processors.kubernetes import KubernetesProcessor
from otel_zernel_processors.kubernetes.seen import plain
from tests.otlp import data, gauge, metrics_in, number
from tests.processors.kubernetes.gpus.kubelet import FakeKubelet, allocated, claimed
from tests.processors.kubernetes.items import UID, pod_item
from tests.processors.kubernetes.node import GROUP, Node

GPU = "GPU-12345678-aaaa-bbbb-cccc-0123456789ab"
BOARD: dict[str, AttributeValue] = {
    "host.name": "node-1",
    "hw.type": "gpu",
    "hw.id": GPU,
    "zernel.gpu.device": "nvidia0",
}


def of_gpu(*points: tuple[str, Mapping[str, AttributeValue]]) -> Batch:
    """A batch of one GPU, as nvml emits it: points of these metrics with these attributes."""
    metrics = data(*(gauge(name, number(1, attributes)) for name, attributes in points), resource=BOARD)
    return Batch.from_bytes(metrics=metrics.SerializeToString())


async def through(processor: KubernetesProcessor, batch: Batch) -> list[dict[str, Any]]:
    """The attributes of all points after the processor."""
    await processor.prepare(batch)
    [after] = processor.process(batch)
    return points_of(after)


def points_of(batch: Batch) -> list[dict[str, Any]]:
    return [plain(point.attributes) for metric in metrics_in(batch.metrics) for point in metric.gauge.data_points]


def holders_of(processor: KubernetesProcessor) -> list[dict[str, Any]]:
    [batch] = processor.tick(1_000)
    return points_of(batch)


async def test_the_holder_of_each_gpu_is_a_point_with_its_job(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.pods = [allocated("trainer-0", GPU), allocated("notebook", f"{GPU[:-1]}f::2")]
    node.cluster.put_pod(pod_item(labels={"job-name": "fit"}))
    async with kubelet.serving(), node.watching(pod_resources={"socket": str(kubelet.socket)}) as processor:
        assert processor.interval == 15
        await until(lambda: processor._sources.holders)
        holders = sorted(holders_of(processor), key=lambda point: str(point["hw.id"]))
    container = {"k8s.namespace.name": "train", "k8s.container.name": "worker"}
    trainer = {**container, "k8s.pod.name": "trainer-0", "zernel.job.id": "train/fit"}
    assert holders == [
        {**trainer, "hw.id": GPU, "zernel.gpu.sharing": "exclusive"},
        {**container, "hw.id": f"{GPU[:-1]}f", "zernel.gpu.sharing": "time_slicing", "k8s.pod.name": "notebook"},
    ]


async def test_a_device_without_a_uuid_is_named_once_nvml_has_seen_it(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.pods = [claimed("trainer-0", "gpu-0")]
    async with kubelet.serving(), node.processor(pod_resources={"socket": str(kubelet.socket)}) as processor:
        await until(lambda: processor._sources.holders)
        assert holders_of(processor)[0]["zernel.gpu.allocated_device"] == "gpu-0"
        await through(processor, of_gpu(("hw.gpu.utilization", {})))
        [now, before] = holders_of(processor)
    assert now["hw.id"] == GPU
    assert now["zernel.gpu.claim"] == "train/one-gpu"
    assert before["zernel.gpu.allocated_device"] == "gpu-0", "the former series ends"


async def test_the_series_of_a_former_holder_ends(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.pods = [allocated("trainer-0", GPU)]
    options = {"socket": str(kubelet.socket), "interval": "10ms"}
    async with kubelet.serving(), node.processor(pod_resources=options) as processor:
        await until(lambda: processor._sources.holders)
        assert [point["k8s.pod.name"] for point in holders_of(processor)] == ["trainer-0"]
        kubelet.pods = []
        await until(lambda: not processor._sources.holders)
        [batch] = processor.tick(2_000)
        assert list(processor.tick(3_000)) == []
    [point] = batch.metrics.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points
    assert has_no_value(point)
    assert plain(point.attributes)["k8s.pod.name"] == "trainer-0"


async def test_the_last_holders_stay_while_the_kubelet_restarts(node: Node, kubelet: FakeKubelet) -> None:
    kubelet.pods = [allocated("trainer-0", GPU)]
    options = {"socket": str(kubelet.socket), "interval": "10ms"}
    async with node.processor(pod_resources=options) as processor:
        async with kubelet.serving():
            await until(lambda: processor._sources.holders)
        await until(lambda: node.context.health.problems)
        assert "kubelet.sock gives no answer" in node.context.health.problems["processors::kubernetes"]
        assert len(holders_of(processor)) == 1
        async with kubelet.serving():
            await until(lambda: not node.context.health.problems)
        assert len(holders_of(processor)) == 1


async def test_the_points_of_a_process_on_a_gpu_get_its_pod(node: Node) -> None:
    node.cluster.put_pod(pod_item(labels={"job-name": "fit"}))
    node.proc.add(7, cgroup=GROUP)
    node.proc.add(8, cgroup="/user.slice")
    batch = of_gpu(
        ("zernel.gpu.process.memory.usage", {"process.pid": 7}),
        ("zernel.gpu.process.memory.usage", {"process.pid": 8}),
        ("zernel.gpu.process.memory.usage", {"process.pid": 7, "zernel.process.pid_namespace": "unknown"}),
        ("hw.gpu.utilization", {"hw.id": GPU}),
    )
    async with node.watching() as processor:
        attributes = await through(processor, batch)
    assert attributes == [
        {
            "process.pid": 7,
            "k8s.namespace.name": "train",
            "k8s.pod.name": "trainer-0",
            "k8s.container.name": "worker",
            "zernel.job.id": "train/fit",
        },
        {"process.pid": 8},
        {"process.pid": 7, "zernel.process.pid_namespace": "unknown"},
        {"hw.id": GPU},
    ]


async def test_the_resource_of_a_gpu_gets_no_pod(node: Node) -> None:
    """Its series would end whenever its pod changes."""
    node.proc.add(7, cgroup=GROUP, pod=UID, container="worker")
    node.add_logs()
    batch = of_gpu(("zernel.gpu.process.memory.usage", {"process.pid": 7}))
    async with node.processor() as processor:
        await through(processor, batch)
    assert plain(batch.metrics.resource_metrics[0].resource.attributes) == {**BOARD, "k8s.node.name": "node-1"}


async def test_an_unexpected_error_ends_no_task(
    node: Node, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet.pods = [allocated("trainer-0", GPU)]
    options = {"socket": str(kubelet.socket), "interval": "10ms"}
    with monkeypatch.context() as broken:
        broken.setattr("otel_zernel_processors.kubernetes.gpus.holders.holders", lambda *_: 1 / 0)
        processor = node.processor(pod_resources=options)
        await processor.__aenter__()
        async with kubelet.serving():
            await until(lambda: node.context.health.problems)
            assert "ZeroDivisionError" in node.context.health.problems["processors::kubernetes"]
            broken.undo()
            await until(lambda: processor._sources.holders and not node.context.health.problems)
    await processor.__aexit__(None, None, None)


async def test_an_answer_that_is_too_old_is_forgotten(
    node: Node, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_zernel_processors.kubernetes.sources._UPKEEP", 0.01)
    kubelet.pods = [allocated("trainer-0", GPU)]
    options = {"socket": str(kubelet.socket), "interval": "10ms"}
    async with node.processor(pod_resources=options, retention="100ms") as processor:
        async with kubelet.serving():
            await until(lambda: processor._sources.holders)
        await until(lambda: not processor._sources.holders)
