"""A receiver without a job says once which processes it looks for, and how many it looked at."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.processes.procfs import ProcessFolder
from otel_zernel_receivers.ebpf.processes.scanner import Scan, Scanner, Selection, read_process
from otel_zernel_receivers.ebpf.scanning import SilenceLog

NOTHING = Scan((), {}, 112)
LINE = "No training job yet: looked at 112 processes, and none has loaded CUDA, NCCL or PyTorch"


def logged(caplog: pytest.LogCaptureFixture, *scans: Scan, selection: Selection | None = None) -> list[str]:
    caplog.set_level(logging.INFO)
    log = SilenceLog(selection or Selection(), 5.0, make_context().logger)
    for scan in scans:
        log.update(scan)
    return [record.getMessage() for record in caplog.records]


def with_a_job() -> Scan:
    return Scan((read_process(ProcessFolder(Path("/proc"), os.getpid()), os.getpid(), ()),), {}, 112)


def test_nothing_found_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = logged(caplog, NOTHING, NOTHING, NOTHING)
    assert line.startswith(f"{LINE}. Looking again every 5 s")


def test_the_end_of_a_job_is_not_silence(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, with_a_job(), NOTHING) == []


def test_conditions_are_named(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = logged(caplog, NOTHING, selection=Selection(names=["train*"]))
    assert "PyTorch and meets the conditions in `processes`. " in line


def test_a_scan_counts_all_processes() -> None:
    assert Scanner(selection=Selection(names=["no such name"])).scan().looked_at > 1


def test_a_real_collector_explains_its_silence_once() -> None:
    config = """
receivers: {ebpf: {processes: {names: [no such name]}, rescan_interval: 200ms}}
processors: {phases: {interval: 500ms, lateness: 100ms}}
exporters: {debug: {}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {training: {receivers: [ebpf], processors: [phases], exporters: [debug]}}
"""
    command = [sys.executable, "-m", "otel_zernel", "run", "--config", f"yaml:{config}"]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as collector:
        Timer(60, collector.kill).start()
        for line in collector.stderr or ():
            lines.append(line)
            if "No training job yet" in line and '"phases"' in line:
                Timer(1, collector.terminate).start()
            if "Nothing is counted yet" in line:
                collector.kill()
                pytest.skip(f"eBPF does not work here: {line}")
    found = [line for line in lines if "No training job yet" in line]
    assert sorted(line.partition('"otelcol.component.id": ')[2][:6] for line in found) == ['"ebpf"', '"phase'], lines
