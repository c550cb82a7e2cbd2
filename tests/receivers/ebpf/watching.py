"""A watch at work in a test, and what its metrics say."""

import functools
import os
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from uuid import uuid4

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import load
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
from otel_zernel_receivers.ebpf.session import Watch
from otel_zernel_receivers.ebpf.tables.tables import Limits

TEST_RUN = "ZERNEL_TEST_RUN"
"""The variable that tells the programs of one run of the tests from those of another on the same machine."""


@pytest.fixture(scope="module", autouse=True)
def own_programs() -> Iterator[None]:
    """Every watch attaches to the programs of this run alone.

    Only its scans are narrowed: a selection in its configuration would leave out whoever ends before it is looked at.
    """
    run = uuid4().hex

    def scanner(selection: Selection) -> Scanner:
        return Scanner(selection=replace(selection, environment={**selection.environment, TEST_RUN: run}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TEST_RUN, run)
        patch.setattr("otel_zernel_receivers.ebpf.session.Scanner", scanner)
        yield


@functools.cache
def why_not(mode: Mode) -> str | None:
    """Why the mode does not work here: tried with a probe and seven calls, not guessed."""
    try:
        load(Limits(max_processes=8, max_series=8), (mode,)).close()
    except (Unavailable, OSError) as missing:
        return str(missing)
    return None


@pytest.fixture(params=list(Mode))
def mode(request: pytest.FixtureRequest) -> Mode:
    """Each way to attach in turn; skips those that do not work here."""
    return require(request.param)


def best_mode() -> Mode | None:
    """The mode that a watch takes here; None where eBPF does not work."""
    return next((mode for mode in Mode if not why_not(mode)), None)


@pytest.fixture
def loadable() -> None:
    """Skips where eBPF does not work in any mode."""
    require_ebpf()


def require_ebpf() -> Mode:
    """The best mode of this kernel; skips the test where there is none."""
    return best_mode() or require(Mode.PERF)


def require(mode: Mode) -> Mode:
    """Skips the test where this mode does not work. ZERNEL_MODES names the modes that must work; default: all."""
    if reason := why_not(mode):
        required = "1" in (os.environ.get("REQUIRE_BPF"), os.environ.get("REQUIRE_PEERS"))
        expected = mode in os.environ.get("ZERNEL_MODES", ",".join(Mode)).split(",")
        (pytest.fail if required and expected else pytest.skip)(f"no eBPF by {mode}: {reason}")
    return mode


@pytest.fixture
def watch(loadable: None) -> Iterator[Watch]:
    """A watch in the best mode, with the default configuration."""
    watch = Watch(EbpfConfig(), make_context(clock=SystemClock()))
    try:
        watch.open()
        yield watch
    finally:
        watch.close()


@contextmanager
def reading(watch: Watch) -> Iterator[None]:
    """Reads again and again meanwhile, as the receiver does: whoever else runs PyTorch here fills the same ring."""
    over = Event()

    def read() -> None:
        while not over.wait(0.05):
            watch.read()

    with ThreadPoolExecutor(1) as thread:
        reader = thread.submit(read)
        try:
            yield
        finally:
            over.set()
        reader.result()


def metrics_of(batch: Batch) -> dict[str, Metric]:
    """The metrics of a batch by name; one that comes several times has all the points."""
    found: defaultdict[str, Metric] = defaultdict(Metric)
    for resource in batch.metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                found[metric.name].MergeFrom(metric)
    return found


def histogram_points(batch: Batch, name: str, **attributes: object) -> list[HistogramDataPoint]:
    """The points of a histogram that have these attributes (`_` for `.` in their names)."""
    metric = metrics_of(batch).get(name)
    points = metric.histogram.data_points if metric else []
    return [point for point in points if attributes.items() <= attributes_of(point).items()]


def numbers(batch: Batch, name: str, **attributes: object) -> list[int]:
    """The integers of a sum's or gauge's points that have these attributes."""
    return [point.as_int for point in _number_points(batch, name, attributes)]


def doubles(batch: Batch, name: str, **attributes: object) -> list[float]:
    """The same where they are no integers."""
    return [point.as_double for point in _number_points(batch, name, attributes)]


def _number_points(batch: Batch, name: str, attributes: dict[str, object]) -> list[NumberDataPoint]:
    metric = metrics_of(batch).get(name)
    points = getattr(metric, str(metric.WhichOneof("data"))).data_points if metric else []
    return [point for point in points if attributes.items() <= attributes_of(point).items()]


def spans_of(batch: Batch, pid: int) -> list[Span]:
    """The spans of what a process did."""
    return [span for span in _all_spans_of(batch, pid) if attributes_of(span)["zernel_interval"] != "process"]


def endings_of(batch: Batch, pid: int) -> list[Span]:
    """The spans of a process as a whole."""
    return [span for span in _all_spans_of(batch, pid) if attributes_of(span)["zernel_interval"] == "process"]


def _all_spans_of(batch: Batch, pid: int) -> list[Span]:
    return [
        span
        for resource in batch.spans.resource_spans
        if attributes_of(resource.resource)["process_pid"] == pid
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def attributes_of(point: HistogramDataPoint | NumberDataPoint | Span | Resource) -> dict[str, object]:
    """The attributes of a point, span or resource, `_` for `.` in their names."""
    return {
        pair.key.replace(".", "_"): getattr(pair.value, str(pair.value.WhichOneof("value")))
        for pair in point.attributes
    }


def calls(batch: Batch, name: str, **attributes: object) -> int:
    """How many calls the histogram's points count in all."""
    return sum(point.count for point in histogram_points(batch, name, **attributes))
