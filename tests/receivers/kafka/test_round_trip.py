"""Any batch goes through the exporter, a topic and the receiver, and arrives equal."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from otel_zernel.batch import Batch, points
from otel_zernel.testing import Downstream, until
from tests.exporters.kafka.exporting import dropped_by, exporting
from tests.libraries.clients.kafka.mock_cluster import mock_cluster
from tests.processors.test_any_data import logs, metrics, spans
from tests.receivers.kafka.receiving import receiving

Item = tuple[bytes, ...]
KEYED = {
    "partition_metrics_by_resource_attributes": True,
    "partition_traces_by_id": True,
    "partition_logs_by_resource_attributes": ["a"],
}


def encoded(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


def items_of(batch: Batch) -> Iterator[Item]:
    """Every point, span and log record with its resource, its scope and its metric."""
    for resource in batch.metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                header = Metric()
                header.CopyFrom(metric)
                if found := points(header):
                    del found[:]
                for point in points(metric):
                    yield encoded(resource.resource), encoded(scope.scope), encoded(header), encoded(point)
    for spans_of_resource in batch.spans.resource_spans:
        for spans_of_scope in spans_of_resource.scope_spans:
            for span in spans_of_scope.spans:
                yield encoded(spans_of_resource.resource), encoded(spans_of_scope.scope), encoded(span)
    for logs_of_resource in batch.logs.resource_logs:
        for logs_of_scope in logs_of_resource.scope_logs:
            for record in logs_of_scope.log_records:
                yield encoded(logs_of_resource.resource), encoded(logs_of_scope.scope), encoded(record)


async def _sent_and_received(given_: list[Batch], options: dict[str, Any]) -> tuple[Counter[Item], Counter[Item]]:
    sent = Counter(item for batch in given_ for item in items_of(batch))
    downstream = Downstream()
    with mock_cluster() as cluster:
        reading = receiving(cluster.brokers, downstream, session_timeout="30s")
        async with exporting(cluster.brokers, producer={"max_message_bytes": 2000, "linger": "0s"}, **options) as one:
            for batch in given_:
                await one.export(batch)
            lost = sum(dropped_by(one).values())
            async with reading:
                await until(lambda: sum(batch.item_count for batch in downstream.batches) == sent.total() - lost)
    received = Counter(item for batch in downstream.batches for item in items_of(batch))
    assert lost == 0 or received <= sent
    return (sent, received) if lost == 0 else (received, received)


@pytest.mark.parametrize("options", [{}, KEYED, {"record_partitioner": {"round_robin": None}}], ids=str)
@settings(max_examples=3, deadline=None)
@given(st.lists(st.tuples(metrics(), spans(), logs()), min_size=1, max_size=8))
def test_any_batch_arrives_equal(
    options: dict[str, Any], messages: list[tuple[MetricsData, TracesData, LogsData]]
) -> None:
    sent, received = asyncio.run(_sent_and_received([Batch(*message) for message in messages], options))
    assert received == sent
