"""The memory of a collector depends on the number of training processes, not on that of their workers."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collectors import running_collector
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.standin.fixture import build_standin as build_standin
from tests.receivers.ebpf.standin.fixture import standin as standin
from tests.receivers.ebpf.watching import TEST_RUN
from tests.receivers.ebpf.watching import loadable as loadable
from tests.soak import ranks as program

pytestmark = pytest.mark.soak

RANKS, WORKERS = 8, 16
LIMIT = 100
"""MB of resident memory."""
FOR_WORKERS = 5
"""MB that all workers together may add."""
SECONDS = float(os.environ.get("SOAK_MINUTES", "1")) * 60
CONFIG = """
receivers: {{ ebpf: {{ rescan_interval: 1s, processes: {{ environment: {{ {run}: "{value}" }} }} }} }}
processors:
  phases: {{ interval: 5s }}
  percentiles: {{ metrics: [zernel.*.latency, zernel.*.sync.wait, zernel.dataloader.wait], interval: 5s }}
exporters: {{ prometheus: {{ endpoint: "localhost:0" }} }}
service:
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines: {{ training: {{ receivers: [ebpf], processors: [phases, percentiles], exporters: [prometheus] }} }}
"""


@contextlib.contextmanager
def job(standin: Standin, workers: int, value: str) -> Iterator[list[int]]:
    """The pids of the ranks of a job."""
    with contextlib.ExitStack() as stack:
        ranks: list[subprocess.Popen[bytes]] = []
        for rank in range(RANKS):
            environment = {**os.environ, TEST_RUN: value, "RANK": str(rank), "WORLD_SIZE": str(RANKS)}
            command = [sys.executable, str(program.__file__), str(standin.folder), str(workers)]
            running = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, env=environment))
            ranks.append(running)
        try:
            yield [running.pid for running in ranks]
        finally:
            for running in ranks:
                assert running.stdin
                running.stdin.close()


def resident(standin: Standin, workers: int, folder: Path) -> float:
    """The largest resident memory, in MB, of a collector that watches a job with so many workers for each rank."""
    value = f"{folder.name}-{workers}"
    config = CONFIG.format(run=TEST_RUN, value=value)
    with job(standin, workers, value), running_collector(folder / str(workers), config) as running:
        samples = []
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            time.sleep(1)
            assert running.process.poll() is None
            samples.append(running.process.memory_info().rss / 1e6)
        running.process.terminate()
        assert running.process.wait(30) == 0
    return max(samples)


def test_8_ranks_with_16_workers_each_need_less_than_100_mb(loadable: None, standin: Standin, tmp_path: Path) -> None:
    with_workers, alone = resident(standin, WORKERS, tmp_path), resident(standin, 0, tmp_path)
    print(f"\n{RANKS} ranks: {alone:.1f} MB; with {RANKS * WORKERS} workers: {with_workers:.1f} MB")
    assert with_workers < LIMIT
    assert with_workers - alone < FOR_WORKERS
