"""A mock cluster in a process of its own, so that its CPU time is not that of the client."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PROGRAM = """
import sys
from tests.libraries.clients.kafka.mock_cluster import MockCluster
cluster = MockCluster(1)
for line in sys.stdin:
    topic, partitions = line.split()
    cluster.create_topic(topic, int(partitions))
    print(",".join(cluster.brokers), flush=True)
"""


@contextmanager
def cluster(**topics: int) -> Iterator[list[str]]:
    """The brokers of a cluster that has these topics with so many partitions. It keeps 5 MiB of each partition."""
    command = [sys.executable, "-c", _PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin
        assert program.stdout
        try:
            brokers = ""
            for topic, partitions in topics.items():
                program.stdin.write(f"{topic} {partitions}\n")
                program.stdin.flush()
                brokers = program.stdout.readline().strip()
            yield brokers.split(",")
        finally:
            program.kill()
