"""The metrics of the receiver about itself: lags end with their partitions."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from otel_zernel.batch import Batch
from otel_zernel.testing import until
from otel_zernel_receivers.kafka import consuming
from tests.core.parts import batch_of
from tests.libraries.clients.kafka.mock_cluster import MockCluster, write
from tests.receivers.kafka.receiving import METRICS, receiving


def values_of_metrics(reader: InMemoryMetricReader) -> dict[str, dict[str, Any]]:
    """The newest value of each series, by metric and partition."""
    data: Any = reader.get_metrics_data()
    found: dict[str, dict[str, Any]] = {}
    for resource in data.resource_metrics if data else ():
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.data.data_points:
                    found.setdefault(metric.name, {})[point.attributes.get("partition", "")] = point.value
    return found


async def test_the_lag_of_a_partition_is_measured_and_ends_with_the_assignment(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming, "_WATCH", 0.1)
    cluster.create_topic(METRICS, 2)
    write(cluster.brokers, METRICS, *(batch_of(float(one)).bytes_of("metrics") for one in range(3)), partition=1)
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    free = asyncio.Event()

    async def emit(batch: Batch, *, transport: str = "") -> None:
        await free.wait()

    async with receiving(cluster.brokers, emit, meter=meter):
        await until(lambda: values_of_metrics(reader).get("otelcol_kafka_receiver_offset_lag", {}).get("1") == 3)
        free.set()
        await until(lambda: values_of_metrics(reader).get("otelcol_kafka_receiver_offset_lag", {}).get("1") == 0)
        values = values_of_metrics(reader)
        assert values["otelcol_kafka_receiver_current_offset"] == {"1": 2}
        assert values["otelcol_kafka_receiver_records"] == {"1": 3}
    await until(lambda: "otelcol_kafka_receiver_offset_lag" not in values_of_metrics(reader))
    ended = values_of_metrics(reader)
    assert "otelcol_kafka_receiver_current_offset" not in ended
    assert ended["otelcol_kafka_receiver_partition_close"] == {"": 2}
