"""A real collector with 256 file descriptors answers its liveness probe while clients attack its health check."""

import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from urllib.request import urlopen

import psutil
import pytest

FILES = 256
CONFIG = """
receivers: {csv: {files: [%s], layout: wide, follow: true}}
exporters: {file: {path: /dev/null}}
extensions: {health_check: {endpoint: "localhost:0"}}
service:
  extensions: [health_check]
  telemetry: {metrics: {level: none}}
  pipelines: {p: {receivers: [csv], exporters: [file]}}
"""


class Collector:
    """A running collector and the address of its health check."""

    def __init__(self, process: "subprocess.Popen[str]", port: int, log: list[str]) -> None:
        self.process, self.port, self.log = process, port, log

    def is_alive(self) -> bool:
        """Whether a liveness probe of Kubernetes, which times out after 1 s, succeeds on a busy machine."""
        with urlopen(f"http://127.0.0.1:{self.port}/", timeout=30) as answer:
            return bool(answer.status == 200)

    def memory(self) -> int:
        """Resident bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    (tmp_path / "in.csv").write_text("timestamp,gpu_id,hostname,gpu_utilization\n")
    command = [sys.executable, "-m", "otel_zernel", "run", "--config", f"yaml:{CONFIG % (tmp_path / 'in.csv')}"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
    ) as process:
        assert process.stderr
        log: list[str] = []
        started = Event()

        def follow() -> None:
            assert process.stderr
            for line in process.stderr:
                log.append(line)
                if "Everything is ready" in line:
                    started.set()

        Thread(target=follow, daemon=True).start()
        try:
            assert started.wait(30), log
            (port,) = re.findall(r"health checks on http://127\.0\.0\.1:(\d+)", "".join(log))
            yield Collector(process, int(port), log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log
            assert not [line for line in log if "Traceback" in line or "\terror\t" in line]
        finally:
            process.kill()


def test_slow_connections_leave_a_place_for_the_probe(collector: Collector) -> None:
    """Fault 7: at 1,024 descriptors, a thousand slow connections made the liveness probe fail."""
    with contextlib.ExitStack() as stack:
        for _ in range(FILES * 2):
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", collector.port)))
            with contextlib.suppress(OSError):
                slow.sendall(b"GET / HT")
        for _ in range(5):
            assert collector.is_alive()
    assert collector.is_alive()


def test_endless_headers_take_no_memory_and_delay_no_probe(collector: Collector) -> None:
    """Fault 3: one endless header took 200 MB, and delayed every export by up to 20 s."""
    before = collector.memory()
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", collector.port)) as attacker:
            attacker.sendall(b"GET / HTTP/1.1\r\na: ")
            with contextlib.suppress(OSError):
                for _ in range(100):
                    attacker.sendall(b"a" * 1_000_000)
            assert collector.is_alive()
    assert collector.memory() - before < 100_000_000
