"""The process as the user runs it: batch runs, signals, ports in use, reloads. No error prints a traceback."""

import gc
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from otel_zernel.runtime.garbage import freeze_all
from tests.waiting import wait_for

ROWS = ["timestamp,gpu_id,hostname,gpu_utilization"]
ROWS += [f"2026-01-01T00:00:{second:02d}Z,0,node,{second}" for second in range(10)]
OWN_METRICS = (
    "service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: localhost, port: %d}}}}]}}}"
)
TO_HTTP = (
    "{exporters: {otlp_http: {endpoint: 'http://127.0.0.1:%d'}}, service: {pipelines: {p: {exporters: [otlp_http]}}}}"
)
QUIET = "service::telemetry::metrics::level=none"
COMMAND = [sys.executable, "-m", "otel_zernel", "run"]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration that copies a CSV file of ten rows into a file of OTLP JSON."""
    (tmp_path / "in.csv").write_text("\n".join(ROWS) + "\n")
    path = tmp_path / "config.yaml"
    path.write_text(f"""
receivers: {{csv: {{files: [{tmp_path}/in.csv], layout: wide, follow: true}}}}
exporters: {{file: {{path: {tmp_path}/out.jsonl, flush_interval: 10ms}}}}
service: {{pipelines: {{p: {{receivers: [csv], exporters: [file]}}}}}}
""")
    return path


@contextmanager
def collector(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", Callable[[str], str]]]:
    """A running collector, and a function that reads its log up to the first line with the given words."""
    with subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True) as process:

        def read_until(words: str) -> str:
            assert process.stderr
            for line in process.stderr:
                if words in line:
                    return line
            raise AssertionError(f"the collector ended without logging {words!r}")

        try:
            yield process, read_until
        finally:
            process.kill()


def values(folder: Path) -> list[float]:
    """Every value in the file of OTLP JSON, sorted."""
    found = []
    for line in (folder / "out.jsonl").read_text().splitlines():
        for resource in json.loads(line)["resourceMetrics"]:
            for metric in resource["scopeMetrics"][0]["metrics"]:
                found += [point["asDouble"] for point in metric["gauge"]["dataPoints"]]
    return sorted(found)


def test_a_batch_run_ends_with_status_0_and_every_point_delivered(config: Path) -> None:
    arguments = ["--config", str(config), "--set", "receivers.csv.follow=false", "--set", QUIET, "--exit-when-done"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert values(config.parent) == [second / 100 for second in range(10)]


def test_a_batch_run_with_a_truncated_input_delivers_all_complete_rows_and_fails(config: Path) -> None:
    text = (config.parent / "in.csv").read_bytes()
    (config.parent / "in.csv").write_bytes(gzip.compress(text) + gzip.compress(text)[:-9])
    arguments = ["--config", str(config), "--set", "receivers.csv.follow=false", "--set", QUIET, "--exit-when-done"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert f"cannot read {config.parent}/in.csv" in done.stderr
    assert set(values(config.parent)) == {second / 100 for second in range(10)}


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_ends_with_status_0(config: Path, sent: signal.Signals) -> None:
    with collector("--config", str(config), "--set", QUIET) as (process, read_until):
        read_until("Everything is ready")
        wait_for(lambda: (config.parent / "out.jsonl").exists() and len(values(config.parent)) == 10)
        process.send_signal(sent)
        assert sent.name in read_until("shutting down")
        read_until("Stopped.")
        assert process.wait(60) == 0


def test_a_second_signal_stops_at_once_and_logs_the_undelivered_items(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        port = silent_server.getsockname()[1]
        over = f"yaml:{TO_HTTP % port}"
        with collector("--config", str(config), "--config", over, "--set", QUIET) as (process, read_until):
            read_until("Everything is ready")
            with silent_server.accept()[0]:
                process.send_signal(signal.SIGINT)
                read_until("shutting down")
                wait_for(lambda: has_ended_by(process, signal.SIGINT))
                assert "10 metric points" in read_until("could not deliver")
                assert process.wait(60) == 128 + signal.SIGINT


def test_signals_in_quick_succession_count_as_one_and_all_data_is_delivered(config: Path) -> None:
    with collector("--config", str(config), "--set", QUIET) as (process, read_until):
        read_until("Everything is ready")
        wait_for(lambda: (config.parent / "out.jsonl").exists() and len(values(config.parent)) == 10)
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
            process.send_signal(sent)
        read_until("Stopped.")
        assert process.wait(60) == 0


def test_a_thread_that_hangs_does_not_block_the_end_of_the_process(config: Path) -> None:
    """The pipe of the debug exporter is full and never read, so its thread hangs in a write."""
    over = "yaml:{exporters: {debug: {verbosity: detailed}}, service: {pipelines: {p: {exporters: [debug, file]}}}}"
    arguments = ["--set", "receivers.csv.follow=false", "--set", "receivers.csv.loop=true"]
    arguments += ["--config", str(config), "--config", over, "--set", QUIET, "--set", "service.shutdown_timeout=100ms"]
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    with suppress(BlockingIOError):
        while os.write(theirs, bytes(4096)):
            pass
    os.set_blocking(theirs, True)
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: (config.parent / "out.jsonl").exists() and values(config.parent) != [])
        process.terminate()
        _, log = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert "Exporter debug could not deliver" in log
    assert "ended by force" in log


def test_a_second_collector_starts_although_the_port_of_the_own_metrics_is_taken(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        over = f"yaml:{OWN_METRICS % port}"
        with collector("--config", str(config), "--config", over) as (process, read_until):
            warning = read_until(f"cannot listen on localhost:{port}: another program has this port")
            assert "service::telemetry::metrics::level" in warning
            read_until("Everything is ready")
            process.terminate()
            assert process.wait(60) == 0


def test_a_port_in_use_is_one_message_and_status_1(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        over = (
            f"yaml:{{extensions: {{health_check: {{endpoint: 'localhost:{port}'}}}},"
            " service: {extensions: [health_check]}}"
        )
        arguments = ["--config", str(config), "--config", over, "--set", QUIET]
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"cannot listen on localhost:{port}: another program has this port" in done.stderr


def test_its_own_metrics_have_the_names_of_the_opentelemetry_collector(config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    over = f"yaml:{OWN_METRICS % port}"
    with collector("--config", str(config), "--config", over) as (_, read_until):
        read_until("Everything is ready")
        wait_for(lambda: (config.parent / "out.jsonl").exists() and len(values(config.parent)) == 10)
        with urlopen(f"http://localhost:{port}/metrics") as page:
            lines = page.read().decode().splitlines()
    samples = {line.partition("{")[0].partition(" ")[0]: line.rpartition(" ")[2] for line in lines if line[0] != "#"}
    assert samples["otelcol_receiver_accepted_metric_points"] == samples["otelcol_exporter_sent_metric_points"] == "10"
    assert {"otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity", "otelcol_process_uptime"} <= set(samples)
    assert float(samples["otelcol_process_memory_rss"]) > 1e7


def test_sighup_loads_a_valid_configuration_and_refuses_an_invalid_one(config: Path) -> None:
    with collector("--config", str(config), "--set", QUIET) as (process, read_until):
        read_until("Everything is ready")
        good = config.read_text()
        config.write_text(good.replace("layout: wide", "layuot: wide"))
        process.send_signal(signal.SIGHUP)
        assert "stays" in read_until("Reload refused")
        config.write_text(good.replace("out.jsonl", "second.jsonl"))
        process.send_signal(signal.SIGHUP)
        read_until("Reloaded the configuration")
        wait_for((config.parent / "second.jsonl").exists)
        process.terminate()
        assert process.wait(60) == 0


def test_a_reload_that_cannot_start_returns_to_the_previous_configuration(config: Path) -> None:
    health = "extensions: {health_check: {endpoint: 'localhost:%d'}}\nservice: {extensions: [health_check], "
    good = config.read_text()
    config.write_text(good.replace("service: {", health % 0))
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        collector("--config", str(config), "--set", QUIET) as (process, read_until),
    ):
        read_until("Everything is ready")
        port = taken.getsockname()[1]
        config.write_text(good.replace("service: {", health % port))
        process.send_signal(signal.SIGHUP)
        assert f"cannot listen on localhost:{port}" in read_until("returning to the previous configuration")
        read_until("The previous configuration runs again.")
        process.terminate()
        read_until("Stopped.")
        assert process.wait(60) == 0


def test_a_missing_file_is_one_message_and_status_1(config: Path) -> None:
    arguments = ["--config", str(config), "--set", QUIET, "--set", "receivers.csv.follow=false"]
    arguments += ["--set", "receivers.csv.files=[/no/such.csv]"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "/no/such.csv" in done.stderr.splitlines()[-1]


def test_the_log_can_be_json(config: Path) -> None:
    arguments = ["--set", "service::telemetry::logs::encoding=json", "--set", "receivers.csv.follow=false"]
    command = [*COMMAND, "--config", str(config), *arguments, "--set", QUIET, "--exit-when-done"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True, env=dict(os.environ))
    assert all(json.loads(line)["level"] for line in done.stderr.splitlines())


def has_ended_by(process: "subprocess.Popen[str]", sent: signal.Signals) -> bool:
    """Sends a signal. Returns whether the process has ended."""
    process.send_signal(sent)
    return process.poll() is not None


def test_objects_that_exist_before_a_service_starts_are_excluded_from_garbage_collection(config: Path) -> None:
    program = (
        "import gc, sys; from otel_zernel.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(gc.get_freeze_count(), len(gc.get_objects()))"
    )
    command = [sys.executable, "-c", program, *COMMAND[3:], "--config", str(config), "--exit-when-done"]
    command += ["--set", "receivers.csv.follow=false", "--set", QUIET]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    frozen, others = map(int, done.stdout.split())
    assert frozen > others, done.stderr


def test_a_reload_collects_the_objects_of_the_previous_service() -> None:
    class Service:
        def __init__(self) -> None:
            self.itself = self

    earlier = Service()
    left = weakref.ref(earlier)
    freeze_all()
    del earlier
    gc.collect()
    assert left() is not None, "frozen objects are excluded from this collection"
    freeze_all()
    assert left() is None
