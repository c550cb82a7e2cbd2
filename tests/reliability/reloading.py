"""A real collector that reloads, and the files that feed it."""

import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.free_ports import free_port
from tests.otlp import metrics_in
from tests.waiting import wait_for

HEADER = "timestamp,gpu_id,hostname,temperature\n"
LONG = 60.0


class Collector:
    """A running collector, its folder and its log."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "otel_zernel", "run", "--config", str(folder / "config.yaml"), *arguments]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def configure(self, text: str) -> None:
        """Writes the configuration as a new file, as editors and Kubernetes do."""
        write_config(self.folder, text)

    def logs(self, words: str, times: int = 1) -> None:
        """Returns when the words are in the log so many times."""
        wait_for(lambda: self.log.count(words) >= times or self.process.poll() is not None, words)
        assert self.log.count(words) >= times, self.log

    def reload(self) -> None:
        """Sends SIGHUP, and returns when the reload is complete."""
        before = self.log.count("Reloaded the configuration")
        self.process.send_signal(signal.SIGHUP)
        self.logs("Reloaded the configuration", before + 1)

    def end(self) -> int:
        self.process.terminate()
        try:
            return self.process.wait(LONG)
        finally:
            self.process.kill()

    def resources(self) -> dict[str, int]:
        """The open descriptors and the threads."""
        proc = Path("/proc") / str(self.process.pid)
        return {"descriptors": len(list((proc / "fd").iterdir())), "threads": len(list((proc / "task").iterdir()))}


def write_config(folder: Path, text: str) -> None:
    (folder / "config.new").write_text(text)
    (folder / "config.new").replace(folder / "config.yaml")


@contextmanager
def collector(folder: Path, text: str, *arguments: str) -> Iterator[Collector]:
    write_config(folder, text)
    running = Collector(folder, *arguments)
    try:
        running.logs("Everything is ready")
        yield running
    finally:
        running.end()


def settled(measure: Callable[[], int]) -> int:
    """The value, once it is positive and the same for two seconds."""
    values: list[int] = []

    def is_settled() -> bool:
        values.append(measure())
        return len(values) > 200 and values[-1] > 0 and len(set(values[-200:])) == 1

    wait_for(is_settled)
    return values[-1]


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


def status(port: int) -> int | None:
    """The HTTP status of a page of the collector. None if nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as page:
            return int(page.status)
    except URLError as error:
        return getattr(error, "code", None)


class Load:
    """Appends rows to a CSV file until it is stopped. Each row has a value of its own."""

    def __init__(self, path: Path, rows_per_write: int = 20) -> None:
        path.write_text(HEADER)
        self.count = 0
        self._path = path
        self._rows = rows_per_write
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def _write(self) -> None:
        with self._path.open("a") as file:
            while not self._stop.wait(0.005):
                rows = range(self.count, self.count + self._rows)
                file.writelines(f"{1767225600 + row / 1000:.3f},0,node,{row}\n" for row in rows)
                file.flush()
                self.count += self._rows

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def values_of(message: ExportMetricsServiceRequest) -> list[float]:
    return [point.as_double for metric in metrics_in(message) for point in metric.gauge.data_points]


def written(path: Path) -> Counter[float]:
    """The values in a file of OTLP JSON, and how often each is there."""
    found: Counter[float] = Counter()
    complete = path.read_bytes().rpartition(b"\n")[0] if path.exists() else b""
    for line in complete.splitlines():
        for resource in json.loads(line)["resourceMetrics"]:
            for metric in resource["scopeMetrics"][0]["metrics"]:
                found.update(point["asDouble"] for point in metric["gauge"]["dataPoints"])
    return found


def has_written(path: Path, count: int) -> None:
    """Returns when the file has so many values."""
    wait_for(lambda: path.exists() and path.read_bytes().count(b'"asDouble"') >= count, f"{count} values")


def config(
    folder: Path,
    *,
    level: str = "info",
    own: int,
    health: int,
    extra_exporter: bool = False,
    processor: str = "",
    flush: str = "20ms",
    page: int = 0,
) -> str:
    exporters = ["file", "file/b"] if extra_exporter else ["file"]
    exporters += ["prometheus"] if page else []
    return f"""
receivers:
  csv: {{files: ["{folder}/in.csv"], layout: wide, follow: true, interval: 20ms}}
processors:
  resource: {{attributes: [{{key: a, value: "{processor}", action: upsert}}]}}
exporters:
  file: {{path: "{folder}/out.jsonl", flush_interval: {flush}}}
  file/b: {{path: "{folder}/b.jsonl", flush_interval: {flush}, append: true}}
  prometheus: {{endpoint: "127.0.0.1:{page or 1}"}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{health}"}}
service:
  extensions: [health_check]
  telemetry:
    logs: {{level: {level}, sampling: {{enabled: false}}}}
    metrics: {{readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {own}}}}}}}}}]}}
  pipelines:
    p:
      receivers: [csv]
      processors: [{"resource" if processor else ""}]
      exporters: [{", ".join(exporters)}]
"""


def variants(folder: Path, one: int, other: int, page: int) -> list[str]:
    """Configurations that differ in every kind of component, and exchange the ports of three of them."""
    return [
        config(folder, own=one, health=other, page=page),
        config(folder, own=one, health=other, processor="x", page=page),
        config(folder, own=other, health=one, processor="x", page=page, level="debug"),
        config(folder, own=other, health=page, processor="y", page=one, flush="30ms"),
        config(folder, own=one, health=page, processor="y", extra_exporter=True, page=other),
        config(folder, own=one, health=page, processor="", flush="30ms"),
        config(folder, own=one, health=other, processor="", extra_exporter=True, flush="40ms"),
    ]
