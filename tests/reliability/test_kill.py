"""A collector with a durable queue that is killed at any moment, under load, loses no acknowledged point."""

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from otel_zernel.registry import Registry
from tests.core.parts import batch_of
from tests.reliability.backend import UnreliableBackend
from tests.reliability.intake import IntakeSender

ROOT = Path(__file__).parents[2]
LANES = 4
"""Collectors that run at the same time: a start takes most of a second on one core."""
SENDERS = 3
"""Connections to each collector."""
POINTS = 5
"""Points in a batch."""

needs_storage = pytest.mark.skipif(
    "file_storage" not in Registry.installed().types("extensions"), reason="the file_storage extension is not installed"
)


@needs_storage
@pytest.mark.timeout(600)
def test_after_a_hundred_kills_every_acknowledged_point_arrives(tmp_path: Path) -> None:
    _kill(100, tmp_path)


@needs_storage
@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_after_a_thousand_kills_every_acknowledged_point_arrives(tmp_path: Path) -> None:
    _kill(1000, tmp_path)


def _kill(kills: int, folder: Path) -> None:
    seed = random.randrange(1 << 32)
    print(f"\nseed {seed}")
    plugin = _plugin(folder)
    with UnreliableBackend(seed) as backend, ThreadPoolExecutor(LANES) as threads:
        values = itertools.count(1)
        lanes = [Lane(folder / str(n), plugin, backend, values, random.Random(seed + n)) for n in range(LANES)]
        list(threads.map(lambda lane: lane.run(kills // LANES), lanes))
        delivered = backend.delivered.copy()
    acknowledged = set[int]().union(*(lane.acknowledged for lane in lanes))
    print(
        f"{kills} kills, {sum(lane.under_load for lane in lanes)} of them under load: "
        f"{len(acknowledged)} points acknowledged, {len(acknowledged & set(delivered))} of them delivered, "
        f"{len(set(delivered) - acknowledged)} delivered without an acknowledgement, "
        f"{delivered.total() - len(delivered)} duplicates"
    )
    assert sum(lane.under_load for lane in lanes) >= kills / 2, "most kills hit a collector under load"
    assert len(acknowledged) >= 10 * kills
    assert not acknowledged - set(delivered)


@dataclass
class Lane:
    """One collector after another, on the same storage."""

    folder: Path
    plugin: Path
    backend: UnreliableBackend
    values: Iterator[int]
    random: random.Random
    acknowledged: set[int] = field(default_factory=set)
    under_load: int = 0

    def run(self, kills: int) -> None:
        """Kills that many collectors, and lets the last one deliver what is left."""
        self.folder.mkdir()
        for _ in range(kills):
            self._run_until_killed()
        with self._collector() as collector:
            _wait_until(lambda: not self._missing() or collector.poll() is not None, 60)
            collector.terminate()
            collector.wait(30)
        log = (self.folder / "log").read_text()
        assert not self._missing(), log[-4000:]
        assert "Dropped" not in log
        assert "damaged" not in log

    def _missing(self) -> set[int]:
        return self.acknowledged - self.backend.delivered.keys()

    def _run_until_killed(self) -> None:
        """One kill in five hits the start, or the delivery of what earlier collectors left."""
        before = len(self.acknowledged)
        with self._collector() as collector:
            if self.random.random() < 0.2:
                time.sleep(self.random.uniform(0.2, 1.5))
            else:
                stop = threading.Event()
                senders = [threading.Thread(target=self._send, args=(collector, stop)) for _ in range(SENDERS)]
                for sender in senders:
                    sender.start()
                _wait_until(lambda: len(self.acknowledged) > before or collector.poll() is not None, 60)
                time.sleep(self.random.uniform(0, 0.3))
                assert collector.poll() is None, (self.folder / "log").read_text()[-4000:]
                collector.send_signal(signal.SIGKILL)
                stop.set()
                for sender in senders:
                    sender.join()
            collector.kill()
        self.under_load += len(self.acknowledged) > before

    def _send(self, collector: "subprocess.Popen[bytes]", stop: threading.Event) -> None:
        sender: IntakeSender | None = None
        while not stop.is_set() and collector.poll() is None:
            with suppress(OSError, EOFError):
                sender = sender or IntakeSender(self._socket)
                values = [next(self.values) for _ in range(POINTS)]
                if sender.send(batch_of(*map(float, values)).metrics_bytes()):
                    self.acknowledged.update(values)
                    continue
            time.sleep(0.01)
        if sender:
            sender.close()

    @property
    def _socket(self) -> Path:
        return self.folder / "intake"

    @contextmanager
    def _collector(self) -> Iterator["subprocess.Popen[bytes]"]:
        config = f"""yaml:
receivers: {{intake: {{path: {self._socket}}}}}
exporters:
  otlp_http:
    endpoint: {self.backend.endpoint}
    compression: none
    sending_queue: {{storage: file_storage, num_consumers: 4, batch: {{min_size: 50, flush_timeout: 20ms}}}}
    retry_on_failure: {{initial_interval: 50ms, max_interval: 200ms}}
extensions: {{file_storage: {{directory: {self.folder}/storage, create_directory: true, timeout: 10s}}}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [intake], exporters: [otlp_http]}}}}
"""
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", config]
        paths = (str(self.plugin), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")]))
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        with (self.folder / "log").open("ab") as log:
            collector = subprocess.Popen(command, stderr=log, env=environ, cwd=ROOT)
            try:
                yield collector
            finally:
                collector.kill()
                collector.wait()


def _plugin(folder: Path) -> Path:
    """A folder for `sys.path` that installs the receiver `intake`."""
    metadata = folder / "plugin" / "zernel_test_intake-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: zernel-test-intake\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[otel_zernel.receivers]\nintake = tests.reliability.intake:Intake\n")
    return metadata.parent


def _wait_until(condition: Callable[[], object], within: float) -> None:
    """Returns when the condition is true, or after `within` s."""

    end = time.monotonic() + within
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
