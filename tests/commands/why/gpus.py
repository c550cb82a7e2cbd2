"""Points of the nvml receiver about one GPU."""

from collections.abc import Iterable

from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, MetricsData, NumberDataPoint, ResourceMetrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch
from otel_zernel.otlp.points import AttributeValue, key_values

Reading = tuple[str, float, dict[str, AttributeValue]]
"""The name of a metric, its value, and the attributes of its point."""


def gpu_batch(index: int, readings: Iterable[Reading], host: str = "trainer") -> Batch:
    """A batch with one point for each reading."""
    attributes: dict[str, AttributeValue] = {
        "host.name": host, "hw.id": f"GPU-{index}", "hw.model": "NVIDIA H100", "zernel.gpu.index": index
    }  # fmt: skip
    data = MetricsData(resource_metrics=[ResourceMetrics(resource=Resource(attributes=key_values(attributes)))])
    scope = data.resource_metrics[0].scope_metrics.add()
    for name, value, labels in readings:
        point = NumberDataPoint(as_double=value, attributes=key_values(labels))
        scope.metrics.append(Metric(name=name, gauge=Gauge(data_points=[point])))
    return Batch(metrics=data)


def throttled(index: int, pid: int, *, busy: float = 0.5, share_capped: float = 0.5) -> list[Batch]:
    """Ten readings of a GPU that the process uses. Its power limit lowers the clocks in a share of them."""
    reason = "zernel.gpu.throttle.reason"
    return [
        gpu_batch(
            index,
            [
                ("hw.gpu.utilization", busy, {"hw.gpu.task": "general"}),
                ("hw.power", 650.0, {}),
                ("hw.temperature", 70.0 + number, {"hw.sensor_location": "gpu"}),
                ("hw.gpu.memory.utilization", 0.9, {}),
                ("zernel.gpu.throttle.active", float(number < 10 * share_capped), {reason: "sw_power_cap"}),
                ("zernel.gpu.throttle.active", 1.0, {reason: "idle"}),
                ("zernel.gpu.process.memory.usage", 1e9, {"process.pid": pid}),
            ],
        )
        for number in range(10)
    ]
