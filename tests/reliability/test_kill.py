"""A collector with a durable queue that is killed at any moment, under load, loses no acknowledged point."""

import itertools
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from otel_zernel.registry import Registry
from tests.core.parts import batch_of
from tests.reliability.backend import UnreliableBackend
from tests.reliability.forked import Collectors
from tests.reliability.senders import GrpcSender, HttpSender, Sender

SENDERS = (GrpcSender, GrpcSender, HttpSender, HttpSender)
"""The connections to each collector."""
POINTS = 5
"""Points in a request."""


@pytest.mark.skipif(
    "file_storage" not in Registry.installed().types("extensions"), reason="the file_storage extension is not installed"
)
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("lanes", "kills"), [(2, 8), pytest.param(4, 1000, marks=pytest.mark.soak)])
def test_after_kills_every_acknowledged_point_arrives(
    tmp_path: Path, unused_tcp_port_factory: Callable[[], int], lanes: int, kills: int
) -> None:
    """In each lane, one collector after another runs beside those of the other lanes."""
    seed = random.randrange(1 << 32)
    print(f"\nseed {seed}")
    port = unused_tcp_port_factory
    with UnreliableBackend(seed) as backend, ThreadPoolExecutor(lanes) as threads:
        values = itertools.count(1)
        all_lanes = [
            Lane(tmp_path / str(n), (port(), port()), backend, values, random.Random(seed + n)) for n in range(lanes)
        ]
        list(threads.map(lambda lane: lane.run(kills // lanes), all_lanes))
        delivered = backend.delivered.copy()
    acknowledged = set[int]().union(*(lane.acknowledged for lane in all_lanes))
    print(
        f"{kills} kills, {sum(lane.under_load for lane in all_lanes)} of them under load: "
        f"{len(acknowledged)} points acknowledged, {len(acknowledged & set(delivered))} of them delivered, "
        f"{len(set(delivered) - acknowledged)} delivered without an acknowledgement, "
        f"{delivered.total() - len(delivered)} duplicates"
    )
    assert sum(lane.under_load for lane in all_lanes) >= kills / 4, "many kills hit a collector under load"
    assert len(acknowledged) >= 10 * kills
    assert not acknowledged - set(delivered)


@dataclass
class Lane:
    """One collector after another, on the same ports and the same storage."""

    folder: Path
    ports: tuple[int, int]
    """For gRPC and HTTP."""
    backend: UnreliableBackend
    values: Iterator[int]
    random: random.Random
    acknowledged: set[int] = field(default_factory=set)
    under_load: int = 0

    def run(self, kills: int) -> None:
        """Kills that many collectors, and lets the last one deliver what is left."""
        self.folder.mkdir()
        with Collectors(self._config(), self._log, self.ports) as collectors:
            for _ in range(kills):
                collectors.start()
                self._kill(collectors)
                assert collectors.wait() == -signal.SIGKILL, self._log.read_text()[-4000:]
            collectors.start()
            _wait_until(lambda: not self._missing() or collectors.has_ended, 60)
            collectors.send_signal(signal.SIGKILL)
            assert collectors.wait() == -signal.SIGKILL, self._log.read_text()[-4000:]
        log = self._log.read_text()
        assert not self._missing(), log[-4000:]
        assert "Dropped" not in log
        assert "damaged" not in log

    def _missing(self) -> set[int]:
        return self.acknowledged - self.backend.delivered.keys()

    def _kill(self, collectors: Collectors) -> None:
        """One kill in five hits the start, or the delivery of what earlier collectors left."""
        if self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, 0.4))
            collectors.send_signal(signal.SIGKILL)
            return
        before = len(self.acknowledged)
        stop = threading.Event()
        senders = [threading.Thread(target=self._send, args=(connect, stop)) for connect in self._connections()]
        for sender in senders:
            sender.start()
        _wait_until(lambda: len(self.acknowledged) > before or collectors.has_ended, 60)
        time.sleep(self.random.uniform(0, 0.3))
        collectors.send_signal(signal.SIGKILL)
        stop.set()
        for sender in senders:
            sender.join()
        self.under_load += len(self.acknowledged) > before

    def _connections(self) -> Iterator[Callable[[], Sender]]:
        for kind in SENDERS:
            yield partial(kind, self.ports[kind is HttpSender])

    def _send(self, connect: Callable[[], Sender], stop: threading.Event) -> None:
        sender = connect()
        while not stop.is_set():
            values = [next(self.values) for _ in range(POINTS)]
            if sender.send(batch_of(*map(float, values)).bytes_of("metrics")):
                self.acknowledged.update(values)
            else:
                stop.wait(0.01)
        sender.close()

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _config(self) -> str:
        grpc, http = ({"endpoint": f"127.0.0.1:{port}"} for port in self.ports)
        queue = {"storage": "file_storage", "num_consumers": 4, "batch": {"min_size": 50, "flush_timeout": "20ms"}}
        exporter = {
            "endpoint": self.backend.endpoint,
            "compression": "none",
            "sending_queue": queue,
            "retry_on_failure": {"initial_interval": "50ms", "max_interval": "200ms"},
        }
        settings = {
            "receivers": {"otlp": {"protocols": {"grpc": grpc, "http": http}}},
            "exporters": {"otlp_http": exporter},
            "extensions": {"file_storage": {"directory": str(self.folder / "storage"), "create_directory": True}},
            "service": {
                "extensions": ["file_storage"],
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"metrics": {"receivers": ["otlp"], "exporters": ["otlp_http"]}},
            },
        }
        return f"yaml:{json.dumps(settings)}"


def _wait_until(condition: Callable[[], object], within: float) -> None:
    """Returns when the condition is true, or after `within` s."""
    end = time.monotonic() + within
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
