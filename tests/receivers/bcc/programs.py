"""Programs, and receivers that run them in the real child process or in a faulty one."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import Meter

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.bcc import BccReceiver, child
from otel_zernel_receivers.bcc.config import BccConfig
from otel_zernel_receivers.bcc.doctor import examine
from tests.otlp import rows_in

_CHILD = Path(child.__file__).parent
FRAMES = """
import sys; sys.path.insert(0, FOLDER)
import os, time
from frames import Channel, frame
channel = Channel()
"""
READY = 'channel.receive(); channel.send({"ready": [["p", "calls", ["pid"], [""]]]})\n'
CALLS = {"table": "calls", "name": "calls", "type": "sum", "labels": [{"name": "pid", "field": "pid"}]}


def kernel_headers() -> str | None:
    """A folder with headers if those of the running kernel are missing: the programs of the tests fit to any."""
    if Path("/lib/modules", os.uname().release).exists() or Path("/sys/kernel/kheaders.tar.xz").exists():
        return None
    folders = sorted(Path("/lib/modules").glob("*"))
    return str(folders[-1]) if folders else None


def config(programs: Mapping[str, Any], **options: Any) -> BccConfig:
    return BccConfig.model_validate({"programs": programs, "kernel_headers": kernel_headers(), **options})


def require_bcc() -> None:
    """Skips the test if BCC does not work here. With REQUIRE_BPF=1 or REQUIRE_PEERS=1, it fails instead."""
    (finding,) = examine(config({"p": {"source": "x", "metrics": [CALLS]}}))
    if not finding.ok:
        assert "1" not in (os.environ.get("REQUIRE_BPF"), os.environ.get("REQUIRE_PEERS")), finding.text
        pytest.skip(finding.text)


def receiver(programs: Mapping[str, Any], meter: Meter | None = None, **options: Any) -> BccReceiver:
    """A receiver with the real child."""
    return BccReceiver(config(programs, **options), make_context(clock=SystemClock(), meter=meter))


def with_child(script: str, meter: Meter | None = None, *, pid_label: bool = False, **options: Any) -> BccReceiver:
    """A receiver whose child is a Python script behind `FRAMES`. It has a counter by pid."""
    label = {"name": "pid", "field": "pid", "decoders": ["pid"] if pid_label else []}
    program = {"p": {"source": "x", "metrics": [{**CALLS, "labels": [label]}]}}
    context = make_context(clock=SystemClock(), meter=meter)
    line = [sys.executable, "-I", "-S", "-c", FRAMES.replace("FOLDER", repr(str(_CHILD))) + script]
    return BccReceiver(config(program, **options), context, lambda _: line)


Points = dict[tuple[Any, ...], Any]
"""Points by the metric's name and the values of their attributes; None for a staleness point."""


def by_series(batch: Batch) -> Points:
    return {row.key: None if row.value is None else row.point for row in rows_in(batch.metrics)}


def values(batch: Batch) -> Points:
    """The same with numbers; histograms as their counts."""
    return {row.key: row.value for row in rows_in(batch.metrics)}
