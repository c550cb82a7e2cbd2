"""A rank and a worker die under a collector: Prometheus' page, the spans and the log say which, and of what."""

import contextlib
import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from otel_zernel.testing import until
from tests.collectors import running_collector
from tests.receivers.ebpf.jobs import train_workers
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.talking import Talker, talking
from tests.receivers.ebpf.watching import TEST_RUN

CONFIG = """
receivers:
  ebpf: {{ rescan_interval: 500ms, processes: {{ environment: {{ {run}: "{value}" }} }} }}
processors:
  phases: {{ interval: 1s, lateness: 0s }}
exporters:
  prometheus: {{ endpoint: "localhost:{port}", resource_constant_labels: {{ included: ["host.name"] }} }}
  file: {{ path: "{folder}/out.jsonl" }}
service:
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines:
    training: {{ receivers: [ebpf], processors: [phases], exporters: [prometheus, file] }}
"""
JOB = {"RANK": "3", "WORLD_SIZE": "8", "OTEL_SERVICE_NAME": "bert"}


@dataclass
class Collector:
    """A running collector that exports to a page and to a file."""

    folder: Path
    port: int

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def page(self) -> str:
        """The exporter's page; empty before it is served."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://localhost:{self.port}/metrics") as answer:
            return str(answer.read().decode())
        return ""

    def series(self, name: str, **labels: str) -> list[str]:
        """The lines of the page with these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return [
            line
            for line in self.page().splitlines()
            if line.startswith(f"{name}{{") and all(one in line for one in wanted)
        ]

    def exported(self, signal_: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """The spans (`Spans`) or log records (`Logs`) in the file, each with the attributes of its resource."""
        names = {"Spans": ("scopeSpans", "spans"), "Logs": ("scopeLogs", "logRecords")}[signal_]
        file = self.folder / "out.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [
            (attributes(resource["resource"]), item)
            for line in lines
            for resource in line.get(f"resource{signal_}", ())
            for scope in resource[names[0]]
            for item in scope[names[1]]
        ]


def attributes(of: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in of["attributes"]}


@contextlib.contextmanager
def collector(folder: Path) -> Iterator[Collector]:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    with running_collector(folder, CONFIG.format(run=TEST_RUN, value=os.environ[TEST_RUN], folder=folder, port=port)):
        yield Collector(folder, port)


def ranked_job(standin: Standin, **environ: str) -> contextlib.AbstractContextManager[Talker]:
    """A rank that is ready to train. `environ` are variables of its environment."""
    command = [sys.executable, str(train_workers.__file__), str(standin.folder), "fork", "2"]
    return talking(*command, environment={**JOB, **environ})


async def test_which_rank_died_and_of_what_is_in_prometheus_in_the_spans_and_in_the_log(
    loadable: None, standin: Standin, tmp_path: Path
) -> None:
    with collector(tmp_path) as running:
        await until(running.page)
        with ranked_job(standin) as rank:
            workers = json.loads(rank.ask())
            pid = str(rank.pid)

            def has_workers() -> bool:
                rank.ask("step")
                return any(line.endswith(" 2") for line in running.series("zernel_dataloader_workers", process_pid=pid))

            await until(has_workers)
            os.kill(workers[0], signal.SIGKILL)
            await until(lambda: f"pid {workers[0]}) of rank 3 on" in running.log)
        await until(lambda: f"pid {pid}) on" in running.log)
        await until(lambda: running.series("zernel_process_ends_total", process_signal="SIGKILL"))
        (ends,) = running.series("zernel_process_ends_total", process_signal="SIGKILL", zernel_rank="3")
        assert ends.endswith(" 1")
        assert 'job="bert"' in ends
        assert f'host_name="{os.uname().nodename}"' in ends
        assert running.series("zernel_dataloader_worker_ends_total", process_signal="SIGKILL", zernel_rank="3")
        await until(lambda: any(span["name"] == "process" for _, span in running.exported("Spans")))
    ((resource, span),) = [one for one in running.exported("Spans") if one[1]["name"] == "process"]
    assert (resource["service.name"], resource["zernel.rank"]) == ("bert", "3")
    assert attributes(span)["process.signal"] == "SIGKILL"
    records = {record["eventName"]: (resource, record) for resource, record in running.exported("Logs")}
    assert records.keys() - {"zernel.job.causes"} == {"zernel.process.end", "zernel.dataloader.worker.end"}
    resource, record = records["zernel.process.end"]
    assert resource["service.name"] == "bert"
    assert record["body"]["stringValue"].startswith("Rank 3 (")
    assert record["body"]["stringValue"].endswith("was killed by SIGKILL")
