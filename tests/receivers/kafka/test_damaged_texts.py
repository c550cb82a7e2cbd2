"""Texts that are not UTF-8 and a deep value in a record cost no other point."""

from pathlib import Path

import pytest

from tests.libraries.clients.kafka.mock_cluster import MockCluster, write
from tests.receivers.damaged_texts import damaged_json, damaged_metrics, every_point_arrives
from tests.receivers.kafka.receiving import METRICS


@pytest.mark.parametrize("encoding", ["otlp_proto", "otlp_json"])
async def test_every_point_arrives_everywhere(
    cluster: MockCluster, encoding: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    write(cluster.brokers, METRICS, damaged_metrics() if encoding == "otlp_proto" else damaged_json())
    receiver = {"brokers": cluster.brokers, "initial_offset": "earliest", "metrics": {"encoding": encoding}}
    await every_point_arrives(tmp_path, "kafka", receiver, unused_tcp_port)
