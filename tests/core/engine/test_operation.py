"""An outage is in the health, the log, the last line and the exit status of the process."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.answering import answering
from tests.free_ports import free_port
from tests.waiting import wait_for

COMMAND = [sys.executable, "-m", "otel_zernel", "run"]
PATIENCE = 60.0
"""Seconds."""


@contextmanager
def backend(port: int = 0) -> Iterator[list[bytes]]:
    """An OTLP backend over HTTP that accepts everything."""
    bodies: list[bytes] = []

    def answer(_path: str, body: bytes) -> tuple[int, bytes]:
        bodies.append(body)
        return 200, b""

    with answering(answer, address=("127.0.0.1", port)):
        yield bodies


class Collector:
    """A running collector with a log in JSON."""

    def __init__(self, folder: Path, config: str) -> None:
        (folder / "in.csv").write_text("timestamp,gpu_id,hostname,gpu_utilization\n2026-01-01T00:00:00Z,0,node,5\n")
        self.log = folder / "log"
        (folder / "config.yaml").write_text(config.replace("FOLDER", str(folder)))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*COMMAND, "--config", str(folder / "config.yaml")], stderr=log)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def messages(self, words: str) -> list[str]:
        return [line["msg"] for line in self.lines() if words in line["msg"]]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


@pytest.fixture
def collectors() -> Iterator[list[Collector]]:
    running: list[Collector] = []
    yield running
    for one in running:
        one.process.kill()
        one.process.wait()


def config(port: int, health: int, more: str = "") -> str:
    return f"""
receivers:
  csv: {{files: [FOLDER/in.csv], layout: wide, loop: true, interval: 100ms, timestamps: now}}
exporters:
  otlp_http:
    endpoint: "http://127.0.0.1:{port}"
    retry_on_failure: {{initial_interval: 200ms, max_interval: 500ms}}
    sending_queue: {{queue_size: 1000{more}}}
extensions:
  health_check: {{endpoint: "127.0.0.1:{health}", unhealthy_after: 1s}}
  file_storage: {{directory: FOLDER/storage, create_directory: true}}
service:
  extensions: [health_check, file_storage]
  shutdown_timeout: 1s
  telemetry: {{logs: {{encoding: json}}, metrics: {{level: none}}}}
  pipelines: {{p: {{receivers: [csv], exporters: [otlp_http]}}}}
"""


def health_of(port: int) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/") as answer:
            return answer.status, json.load(answer)
    except HTTPError as error:
        return error.code, json.load(error)
    except OSError:
        return 0, {}


def test_an_outage_is_in_the_health_with_its_reason_and_its_end_is_logged(
    tmp_path: Path, collectors: list[Collector]
) -> None:
    port, health = free_port(), free_port()
    collectors.append(collector := Collector(tmp_path, config(port, health)))
    wait_for(lambda: health_of(health)[0] == 503 and "components" in health_of(health)[1])
    components = health_of(health)[1]["components"]
    assert re.fullmatch(
        rf"has delivered nothing for .* s: .*:{port}.*[Cc]onnection refused.*; [\d,]+ metric points are waiting",
        components["exporters::otlp_http"],
    )
    with backend(port) as bodies:
        wait_for(lambda: bodies and health_of(health) != (0, {}) and "components" not in health_of(health)[1])
        assert health_of(health)[0] == 200
        assert collector.stop() == 0
    (again,) = collector.messages("works again")
    assert re.fullmatch(r"The exporter works again after .* s; [\d,]+ metric points are waiting\.", again)
    assert collector.lines()[-1]["msg"] == "Stopped."


def test_sigterm_exits_with_1_if_points_are_lost_and_says_which(tmp_path: Path, collectors: list[Collector]) -> None:
    port, health = free_port(), free_port()
    impatient = config(port, health).replace("shutdown_timeout: 1s", "shutdown_timeout: 100ms")
    collectors.append(collector := Collector(tmp_path, impatient))
    wait_for(
        lambda: re.search(" for [1-9]", health_of(health)[1].get("components", {}).get("exporters::otlp_http", ""))
    )
    assert len(collector.messages("Export failed")) == 1  # several attempts have failed: they are one line
    assert collector.stop() == 1
    (lost,) = (line for line in collector.lines() if "could not deliver" in line["msg"])
    assert (lost["level"], lost["otelcol.component.id"], lost["reason"]) == ("error", "otlp_http", "undelivered")
    assert lost["points"] > 0
    assert f"could not deliver {lost['points']} metric points" in lost["msg"]
    assert "onnection refused" in lost["msg"]
    assert collector.lines()[-1]["msg"].startswith(f"Stopped. Lost {lost['points']:,} items")


def test_a_receiver_that_a_full_durable_queue_holds_back_is_logged_and_in_the_health(
    tmp_path: Path, collectors: list[Collector]
) -> None:
    port, health, own = free_port(), free_port(), free_port()
    page = f"readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {own}}}}}}}}}]"
    durable = config(port, health, ", storage: file_storage").replace(
        "queue_size: 1000", "queue_size: 3, num_consumers: 1"
    )
    collectors.append(collector := Collector(tmp_path, durable.replace("level: none", page)))
    wait_for(lambda: re.search(r"held back for [1-9]", json.dumps(health_of(health)[1])))
    with urlopen(f"http://127.0.0.1:{own}/metrics") as answer:  # the batch is offered again and again, and counts once
        assert 'otelcol_receiver_refused_metric_points{receiver="csv"} 1\n' in answer.read().decode()
    assert "sending queue" in health_of(health)[1]["components"]["receivers::csv"]
    assert len(collector.messages("The receiver is held back")) == 1
    with backend(port):
        wait_for(lambda: collector.messages("accepted again"))
        wait_for(lambda: "components" not in health_of(health)[1])
        assert collector.stop() == 0


def test_a_collector_that_cannot_start_logs_json_if_its_log_is_json(
    tmp_path: Path, collectors: list[Collector]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        collectors.append(collector := Collector(tmp_path, config(1, taken.getsockname()[1])))
        assert collector.process.wait(PATIENCE) == 1
    last = collector.lines()[-1]
    assert (last["level"], last["msg"].split(":")[0]) == ("error", "Cannot start")
    assert "another program has this port" in last["msg"]


def blocks_sighup(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a SIGHUP would wait: from the first lines of the program until the collector handles it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk"))
    return bool(int(blocked.split()[1], 16) & 1 << (signal.SIGHUP - 1))


@pytest.mark.parametrize("moment", ["the first line runs", "the components start"])
def test_sighup_while_the_collector_starts_does_not_end_it(
    tmp_path: Path, collectors: list[Collector], moment: str
) -> None:
    health = free_port()
    collectors.append(collector := Collector(tmp_path, config(1, health)))
    if moment == "the first line runs":
        wait_for(lambda: blocks_sighup(collector.process))
    else:
        wait_for(lambda: collector.messages("Serving health checks"))
    collector.process.send_signal(signal.SIGHUP)
    wait_for(lambda: collector.messages("Reloaded the configuration"))
    assert health_of(health)[0] != 0
    assert collector.process.poll() is None
