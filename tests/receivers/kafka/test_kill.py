"""A collector that is killed between the fetch and the commit loses nothing: the next one reads the records again."""

import signal
import sys
import time
from pathlib import Path

from tests.collectors import Collector, running_collector
from tests.core.parts import batch_of
from tests.libraries.clients.kafka.mock_cluster import MockCluster, write
from tests.reliability.backend import UnreliableBackend

KILLS = 1
RECORDS = 200
"""Records that are written before each start."""

CONFIG = """
receivers:
  kafka:
    brokers: [{brokers}]
    initial_offset: earliest
    session_timeout: 1s
    heartbeat_interval: 200ms
    max_partition_fetch_size: 2000
    autocommit: {{interval: 50ms}}
exporters:
  otlp_http:
    endpoint: {endpoint}
    compression: none
    # Without a queue, an offset is committed after the export.
    sending_queue: {{enabled: false}}
    retry_on_failure: {{initial_interval: 10ms, max_interval: 50ms}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines:
    metrics: {{receivers: [kafka], exporters: [otlp_http]}}
"""


def _wait(backend: UnreliableBackend, records: int, running: Collector) -> None:
    """Returns when the backend has so many different records."""
    deadline = time.monotonic() + 120
    while len(backend.delivered) < records:
        assert running.process.poll() is None, running.log
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_kill_loses_nothing(cluster: MockCluster, tmp_path: Path) -> None:
    expected: set[int] = set()
    with UnreliableBackend(seed=1) as backend:
        config = CONFIG.format(brokers=", ".join(cluster.brokers), endpoint=backend.endpoint)
        for kill in range(KILLS + 1):
            numbers = range(kill * RECORDS, (kill + 1) * RECORDS)
            expected |= set(numbers)
            write(cluster.brokers, "otlp_metrics", *(batch_of(float(number)).bytes_of("metrics") for number in numbers))
            with running_collector(tmp_path, config, end=signal.SIGKILL) as running:
                _wait(backend, len(backend.delivered) + 20 if kill < KILLS else len(expected), running)
    doubled = backend.delivered.total() - len(backend.delivered)
    sys.stdout.write(f"{KILLS} kills: {len(expected)} records, all delivered, {doubled} repeated deliveries\n")
    assert set(backend.delivered) == expected
