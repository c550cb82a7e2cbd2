"""A collector keeps no data of processes that have ended."""

import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import psutil
import pytest

from otel_zernel_receivers.ebpf.emit.staleness import LINGER
from tests.collectors import Collector, running_collector
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.standin.fixture import build_standin as build_standin
from tests.receivers.ebpf.standin.fixture import standin as standin
from tests.receivers.ebpf.watching import loadable as loadable
from tests.waiting import wait_for

pytestmark = pytest.mark.soak

MINUTES = float(os.environ.get("SOAK_MINUTES", "10"))
AT_A_TIME = 8
JOB = """
load libcudart.so.12
cudaLaunchKernel times=50 threads=2
cudaMalloc size=4096 times=3
cudaMemcpy size=4096 kind=1 times=5
cudaDeviceSynchronize times=3
cudaLaunchKernel null=1
sleep ms=1500
"""
CONFIG = """
receivers: {ebpf: {processes: {environment: {ZERNEL_CHURN: %s}}}}
processors: {percentiles: {}}
exporters: {prometheus: {endpoint: "localhost:0"}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {p: {receivers: [ebpf], processors: [percentiles], exporters: [prometheus]}}
"""


@pytest.mark.timeout(86_400)
def test_short_lived_processes_leave_no_series_and_take_no_more_memory(
    loadable: None, standin: Standin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = uuid4().hex
    monkeypatch.setenv("ZERNEL_CHURN", run)  # other processes of the machine are excluded
    with running_collector(tmp_path, CONFIG % run) as running:
        wait_for(lambda: "Attaching by" in running.log, "the collector attaches")
        memory, pids = [], set()
        ends = time.monotonic() + MINUTES * 60
        while time.monotonic() < ends:
            pids |= run_some(standin)
            memory.append(running.process.memory_info().rss / 1e6)
        assert shown(running) & pids
        wait_for(lambda: not left(running, pids), "ended processes have no series", LINGER + 60)
        running.process.terminate()
        assert running.process.wait(30) == 0, running.log
    # `percentiles` and the page forget a series 5 minutes after its last value (`idle_timeout`, `metric_expiration`).
    settled = memory[len(memory) * 3 // 5 :]
    print(
        f"\n{len(pids):,} processes in {MINUTES:g} min: {memory[0]:.0f} MB after the first ones,"
        f" {settled[0]:.0f} MB after three fifths of the time, {max(settled):.0f} MB at most"
    )
    assert max(settled) < settled[0] * 1.1


def run_some(standin: Standin) -> set[int]:
    """Runs jobs in parallel to their end. Returns their pids."""
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        jobs = threads.map(lambda _: standin.run(JOB, capacity=1 << 10), range(AT_A_TIME))
        pids = {job.pid for job in jobs}
    for calls in standin.folder.glob("log-*"):
        calls.unlink()
    return pids


def shown(running: Collector) -> set[int]:
    """The processes with a series on the page."""
    [address] = re.findall(r"Serving metrics on (http://\S+)", running.log)
    with urlopen(address) as page:
        return set(map(int, re.findall(r'process_pid="(\d+)"', page.read().decode())))


def left(running: Collector, pids: set[int]) -> set[int]:
    """The ended processes that still have a series: at most until the second output of percentiles after their ends."""
    return {pid for pid in shown(running) & pids if not psutil.pid_exists(pid)}
