"""Reloads of a real collector under load: nothing is lost, repeated or leaked, and mistakes change nothing.

`run --watch` notices files that change, as Kubernetes changes them.
"""

import os
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.answering import answering
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import TEST_RUN, require_ebpf
from tests.reliability.reloading import (
    HEADER,
    Collector,
    Load,
    collector,
    config,
    free_ports,
    has_written,
    settled,
    status,
    values_of,
    variants,
    write_config,
    written,
)
from tests.waiting import wait_for

POOL = min(32, (os.cpu_count() or 1) + 4)
"""The threads that the event loop starts when it needs them, and keeps (`ThreadPoolExecutor`). A leak of one thread for
each reload is more."""


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.soak)])
def test_reloads_under_load_lose_repeat_and_leak_nothing(tmp_path: Path, count: int) -> None:
    texts = variants(tmp_path, *free_ports(3))
    with Load(tmp_path / "in.csv") as load, collector(tmp_path, texts[0]) as running:
        for text in (*texts, texts[0]):  # each way once, so that everything is imported and every thread is there
            running.configure(text)
            running.reload()
        first = running.resources()
        for number in range(count):
            running.configure(texts[number % len(texts)])
            running.reload()
        running.configure(texts[4])
        running.reload()
        wait_for(lambda: written(tmp_path / "b.jsonl"))
        running.configure(texts[0])
        running.reload()
        wait_for(lambda: running.resources()["descriptors"] <= first["descriptors"] + 2)
        last = running.resources()
        load.stop()
        has_written(tmp_path / "out.jsonl", load.count)
        assert "\terror\t" not in running.log
        assert running.end() == 0, running.log
    print(f"{count} reloads, {load.count} rows, from {first} to {last}")
    found = written(tmp_path / "out.jsonl")
    assert sorted(found) == [float(row) for row in range(load.count)]
    assert set(found.values()) == {1}
    assert set(written(tmp_path / "b.jsonl").values()) == {1}
    assert last["threads"] <= first["threads"] + POOL
    assert "could not deliver" not in running.log


@contextmanager
def backend(values: Counter[float]) -> Iterator[int]:
    """The port of an OTLP backend that counts the values it receives."""

    def answer(_path: str, body: bytes) -> tuple[int, bytes]:
        values.update(values_of(ExportMetricsServiceRequest.FromString(body)))
        return 200, b""

    with answering(answer) as port:
        yield port


TO_BACKEND = """
receivers: {csv: {files: ["%s/in.csv"], layout: wide, follow: true, interval: 20ms, batch_size: 50}}
exporters:
  otlp_http: {endpoint: "http://127.0.0.1:%d", compression: none, encoding: proto, sending_queue: {%s}}
extensions: {file_storage: {directory: "%s/storage", create_directory: true}}
service:
  extensions: [file_storage]
  telemetry: {metrics: {level: none}, logs: {sampling: {enabled: false}}}
  pipelines: {p: {receivers: [csv], exporters: [otlp_http]}}
"""


def to_backend(folder: Path, port: int, queue: str) -> str:
    return TO_BACKEND % (folder, port, queue, folder)


def test_a_corrected_endpoint_with_a_durable_queue_rescues_the_whole_queue_in_memory(tmp_path: Path) -> None:
    (closed,) = free_ports(1)
    rows = 4000
    (tmp_path / "in.csv").write_text(HEADER + "".join(f"{1767225600 + row},0,node,{row}\n" for row in range(rows)))
    values: Counter[float] = Counter()
    with backend(values) as port, collector(tmp_path, to_backend(tmp_path, closed, "")) as running:
        running.logs("Export failed")
        running.configure(to_backend(tmp_path, port, "storage: file_storage"))
        running.reload()
        wait_for(lambda: values.total() >= rows)
        assert running.end() == 0
        assert sorted(values) == [float(row) for row in range(rows)]
        assert set(values.values()) == {1}


def test_a_typo_changes_nothing_and_names_the_mistake(tmp_path: Path) -> None:
    own, health = free_ports(2)
    text = config(tmp_path, own=own, health=health)
    with Load(tmp_path / "in.csv"), collector(tmp_path, text) as running:
        running.configure(text.replace("layout: wide", "layuot: wide"))
        running.process.send_signal(signal.SIGHUP)
        running.logs("Reload refused; the running configuration stays in use")
        running.logs('did you mean "layout"?')
        before = written(tmp_path / "out.jsonl").total()
        wait_for(lambda: written(tmp_path / "out.jsonl").total() > before)
        assert status(own) == 200
        assert "Reload re" not in running.log.replace("Reload refused", "")


def test_a_taken_port_rolls_back_and_the_old_port_answers_again(tmp_path: Path) -> None:
    own, health = free_ports(2)
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        Load(tmp_path / "in.csv") as load,
        collector(tmp_path, config(tmp_path, own=own, health=health)) as running,
    ):
        port = taken.getsockname()[1]
        for _ in range(3):
            running.configure(config(tmp_path, own=health, health=port, processor="x", flush="30ms"))
            running.process.send_signal(signal.SIGHUP)
            running.logs("The previous configuration runs again.", 1 + running.log.count("runs again."))
        assert f"cannot listen on 127.0.0.1:{port}: another program has this port" in running.log
        assert (status(own), status(health)) == (200, 404)
        load.stop()
        has_written(tmp_path / "out.jsonl", load.count)
        assert running.end() == 0
    found = written(tmp_path / "out.jsonl")
    assert sorted(found) == [float(row) for row in range(load.count)]
    assert set(found.values()) == {1}


def awaits_sighup(process: "subprocess.Popen[bytes]") -> bool:
    """Whether SIGHUP is blocked or handled: from the first line of the program on."""
    states = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in states if line.startswith(("SigBlk", "SigCgt"))]
    return any(mask & 1 << signal.SIGHUP - 1 for mask in masks)


@pytest.mark.parametrize("after", [0.0, 0.2, 0.5])
def test_sighup_during_the_start_is_safe(tmp_path: Path, after: float) -> None:
    own, health = free_ports(2)
    write_config(tmp_path, config(tmp_path, own=own, health=health))
    with Load(tmp_path / "in.csv") as load:
        running = Collector(tmp_path)
        wait_for(lambda: awaits_sighup(running.process))
        time.sleep(after)
        for _ in range(5):
            running.process.send_signal(signal.SIGHUP)
            time.sleep(0.02)
        running.logs("Reloaded the configuration")
        load.stop()
        has_written(tmp_path / "out.jsonl", load.count)
        assert running.end() == 0


def test_many_signals_in_quick_succession_end_with_the_newest_configuration(tmp_path: Path) -> None:
    own, health, newest = free_ports(3)
    (tmp_path / "in.csv").write_text(HEADER)
    with collector(tmp_path, config(tmp_path, own=own, health=health)) as running:
        for number in range(50):
            running.configure(config(tmp_path, own=own, health=health, flush=f"{number + 10}ms"))
            running.process.send_signal(signal.SIGHUP)
        running.configure(config(tmp_path, own=own, health=newest))
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: status(newest) == 404)
        assert status(health) is None
        assert running.log.count("Reloaded the configuration") <= 51, "at most one for each signal"


def test_a_stop_during_a_reload_ends_the_collector_with_all_data_delivered(tmp_path: Path) -> None:
    own, health = free_ports(2)
    with Load(tmp_path / "in.csv") as load, collector(tmp_path, config(tmp_path, own=own, health=health)) as running:
        wait_for(lambda: written(tmp_path / "out.jsonl"))
        load.stop()
        has_written(tmp_path / "out.jsonl", load.count)
        running.configure(config(tmp_path, own=health, health=own, flush="1s", processor="x"))
        running.process.send_signal(signal.SIGHUP)
        assert running.end() == 0
        assert set(written(tmp_path / "out.jsonl").values()) == {1}
        assert "Stopped." in running.log


def test_the_log_level_changes_without_a_restart(tmp_path: Path) -> None:
    own, health, newest = free_ports(3)
    (tmp_path / "in.csv").write_text(HEADER)
    with collector(tmp_path, config(tmp_path, own=own, health=health)) as running:
        running.configure(config(tmp_path, own=own, health=health, level="error"))
        running.process.send_signal(signal.SIGHUP)
        running.logs("Reload keeps extensions::health_check, exporters::file, receivers::csv.")
        running.configure(config(tmp_path, own=own, health=newest, level="error"))
        before = running.log
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: status(newest) == 404)  # the second reload is complete
        assert running.end() == 0
        assert "Reload restarts" not in running.log.removeprefix(before)


EBPF = """
receivers: {ebpf: {interval: %s, rescan_interval: 500ms, processes: {environment: {%s: "%s"}}}}
exporters: {debug: {}, debug/b: {}}
service:
  telemetry: {metrics: {level: none}, logs: {sampling: {enabled: false}}}
  pipelines: {p: {receivers: [ebpf], exporters: [%s]}}
"""


def bpf_objects(process: "subprocess.Popen[bytes]") -> int:
    """The open programs, maps and links of the kernel."""
    number = 0
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            number += "bpf" in str(descriptor.readlink())
    return number


def test_a_kept_ebpf_receiver_keeps_its_objects_and_a_restarted_one_leaks_none(
    tmp_path: Path, standin: Standin
) -> None:
    """The receiver watches one job, since links belong to the libraries of the jobs: others may begin and end."""
    require_ebpf()

    def ebpf(interval: str, exporter: str) -> str:
        return EBPF % (interval, TEST_RUN, tmp_path.name, exporter)

    with (
        standin.start(environment={TEST_RUN: tmp_path.name}, loads=["libcudart.so.12"]),
        collector(tmp_path, ebpf("5s", "debug")) as running,
    ):
        first = settled(lambda: bpf_objects(running.process))
        for exporter in ("debug/b", "debug"):
            running.configure(ebpf("5s", exporter))
            running.reload()
        assert bpf_objects(running.process) == first
        assert "restarts receivers::ebpf" not in running.log
        running.configure(ebpf("6s", "debug"))
        running.reload()
        wait_for(lambda: bpf_objects(running.process) == first)
        assert running.log.count("Reload restarts receivers::ebpf (changed: interval).") == 1


class ConfigMap:
    """A folder as Kubernetes mounts it: the files are links through `..data`, which is exchanged at once."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self._version = 0
        self.update(text)
        for name in ("config.yaml", "endpoint"):
            (folder / name).symlink_to(Path("..data") / name)

    def update(self, text: str, endpoint: str = "") -> None:
        self._version += 1
        data = self.folder / f"..{self._version}"
        data.mkdir()
        (data / "config.yaml").write_text(text)
        (data / "endpoint").write_text(endpoint)
        os.utime(data / "config.yaml", (1, 1))  # all versions have the same time and perhaps the same size
        (self.folder / "..data_tmp").symlink_to(data.name)
        (self.folder / "..data_tmp").replace(self.folder / "..data")


def test_watch_notices_a_configmap_that_kubernetes_exchanges_and_files_that_the_configuration_names(
    tmp_path: Path,
) -> None:
    own, first, second, third = free_ports(4)
    (tmp_path / "in.csv").write_text(HEADER)
    (tmp_path / "mounted").mkdir()
    text = config(tmp_path, own=own, health=first)
    configmap = ConfigMap(tmp_path / "mounted", text)
    (tmp_path / "config.yaml").symlink_to(tmp_path / "mounted" / "config.yaml")
    running = Collector(tmp_path, "--watch")
    try:
        running.logs("Everything is ready")
        referring = text.replace(f"127.0.0.1:{first}", f"${{file:{tmp_path}/mounted/endpoint}}")
        configmap.update(referring, endpoint=f"127.0.0.1:{second}")
        wait_for(lambda: status(second) == 404)
        assert status(first) is None
        configmap.update(referring, endpoint=f"127.0.0.1:{third}")
        wait_for(lambda: status(third) == 404)
        assert running.log.count("Reload restarts extensions::health_check (changed: endpoint).") == 2
    finally:
        assert running.end() == 0
