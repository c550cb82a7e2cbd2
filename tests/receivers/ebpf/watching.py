"""A session of the receiver in a test, and readers of the metrics and spans that it makes."""

import functools
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from threading import Event
from typing import Self
from uuid import uuid4

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import HistogramDataPoint, Metric, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_zernel.batch import Batch
from otel_zernel.clock import SystemClock
from otel_zernel.component import Context
from otel_zernel.testing import make_context
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.kernel.unavailable import Unavailable
from otel_zernel_receivers.ebpf.probes.attach_modes import Mode
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
from otel_zernel_receivers.ebpf.session import Session
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.tables import Limits
from tests.otlp import metrics_in
from tests.receivers.ebpf.standin import Program, Standin

TEST_RUN = "ZERNEL_TEST_RUN"
"""The environment variable that identifies the programs of this test run; others may run on the same machine."""


class Watch:
    """An open session in a test, until the end of its context. It keeps what it has read until `taken`."""

    def __init__(
        self,
        config: EbpfConfig | None = None,
        context: Context | None = None,
        loader: Callable[[Limits], LoadedProbes] = load,
    ) -> None:
        """Opens the session. Raises Unavailable."""
        self._stack = ExitStack()
        context = context or make_context(clock=SystemClock())
        self.session = self._stack.enter_context(Session.open(config or EbpfConfig(), context, loader))
        self._batches: list[Batch] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def attach(self) -> None:
        self.session.attach()

    def gather(self) -> bool:
        is_due = self.session.make_room()
        return self.session.gather() or is_due

    def processes(self) -> list[WatchedProcess]:
        return self.session.processes()

    def read(self, *, is_last: bool = False) -> Batch:
        """Reads. Returns all that was read since the last call of `taken`."""
        self._batches += self.session.read(is_last=is_last).batches
        return Batch.join(self._batches)

    def taken(self) -> None:
        """Forgets what was read."""
        self._batches.clear()

    def settle(self) -> None:
        """Reads until the rows of ended processes are free, which is two readings later. Forgets what was read."""
        for _ in range(3):
            self.session.read()
        self.taken()


@contextmanager
def watched_program(standin: Standin, config: EbpfConfig) -> Iterator[tuple[Watch, LoadedProbes, Program]]:
    """The stand-in program, watched by a session."""
    loaded: list[LoadedProbes] = []

    def keep(limits: Limits) -> LoadedProbes:
        loaded.append(load(limits))
        return loaded[-1]

    with (
        Watch(config, loader=keep) as watch,
        standin.start(loads=["libcudart.so.12"]) as program,
    ):
        watch.attach()
        yield watch, loaded[-1], program


@pytest.fixture(scope="module", autouse=True)
def own_programs() -> Iterator[None]:
    """Every session attaches to the programs of this test run only.

    Only its scans are narrowed. A selection in its configuration would drop processes that end before they are scanned.
    """
    run = uuid4().hex

    def scanner(selection: Selection) -> Scanner:
        return Scanner(selection=replace(selection, environment={**selection.environment, TEST_RUN: run}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TEST_RUN, run)
        patch.setattr("otel_zernel_receivers.ebpf.scanning.Scanner", scanner)
        yield


@functools.cache
def why_not(mode: Mode) -> str | None:
    """Why the mode does not work on this machine, from a trial with one probe and seven calls. None if it works."""
    try:
        load(Limits(max_processes=8, max_series=8), (mode,)).close()
    except (Unavailable, OSError) as missing:
        return str(missing)
    return None


@pytest.fixture(params=list(Mode))
def mode(request: pytest.FixtureRequest) -> Mode:
    """Each way to attach in turn. Skips the test if it does not work on this machine."""
    return require(request.param)


def best_mode() -> Mode | None:
    """The mode that a session uses on this machine; None if eBPF does not work."""
    return next((mode for mode in Mode if not why_not(mode)), None)


@pytest.fixture
def loadable() -> None:
    """Skips the test if eBPF does not work in any mode."""
    require_ebpf()


def require_ebpf() -> Mode:
    """The best mode of this kernel. Skips the test if no mode works."""
    return best_mode() or require(Mode.PERF)


def require(mode: Mode) -> Mode:
    """Skips the test if this mode does not work. ZERNEL_MODES lists the modes that must work; default: all."""
    if reason := why_not(mode):
        required = "1" in (os.environ.get("REQUIRE_BPF"), os.environ.get("REQUIRE_PEERS"))
        expected = mode in os.environ.get("ZERNEL_MODES", ",".join(Mode)).split(",")
        (pytest.fail if required and expected else pytest.skip)(f"no eBPF by {mode}: {reason}")
    return mode


@pytest.fixture(scope="module")
def shared_watch() -> Iterator[Watch]:
    """The session of `watch`."""
    require_ebpf()
    with Watch() as watch:
        yield watch


@pytest.fixture
def watch(shared_watch: Watch) -> Watch:
    """A session in the best mode, with the default configuration.

    All tests of a file share it, because to open one takes a second. Libraries keep the probes of earlier tests.
    """
    shared_watch.settle()
    return shared_watch


@pytest.fixture
def fresh_watch(loadable: None) -> Iterator[Watch]:
    """A session like `watch`, for this test alone: no library has probes before it is attached."""
    with Watch() as watch:
        yield watch


@contextmanager
def reading(watch: Watch) -> Iterator[None]:
    """Reads all the time, as the receiver does: other PyTorch jobs on this machine fill the same ring buffer."""
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
    """The metrics of a batch by name. The points of metrics with the same name are merged."""
    found: defaultdict[str, Metric] = defaultdict(Metric)
    for metric in metrics_in(batch.metrics):
        found[metric.name].MergeFrom(metric)
    return found


def histogram_points(batch: Batch, name: str, **attributes: object) -> list[HistogramDataPoint]:
    """The points of a histogram with these attributes (`_` for `.` in their names)."""
    metric = metrics_of(batch).get(name)
    points = metric.histogram.data_points if metric else []
    return [point for point in points if attributes.items() <= attributes_of(point).items()]


def numbers(batch: Batch, name: str, **attributes: object) -> list[int]:
    """The integer values of the points of a sum or gauge with these attributes."""
    return [point.as_int for point in number_points(batch, name, attributes)]


def doubles(batch: Batch, name: str, **attributes: object) -> list[float]:
    """The floating-point values of the points of a sum or gauge with these attributes."""
    return [point.as_double for point in number_points(batch, name, attributes)]


def number_points(batch: Batch, name: str, attributes: dict[str, object]) -> list[NumberDataPoint]:
    """The points of a sum or gauge with these attributes."""
    metric = metrics_of(batch).get(name)
    points = getattr(metric, str(metric.WhichOneof("data"))).data_points if metric else []
    return [point for point in points if attributes.items() <= attributes_of(point).items()]


def spans_of(batch: Batch, pid: int) -> list[Span]:
    """The spans of a process, without the span of its whole lifetime."""
    return [span for span in _all_spans_of(batch, pid) if attributes_of(span)["zernel_interval"] != "process"]


def endings_of(batch: Batch, pid: int) -> list[Span]:
    """The spans of a process's whole lifetime: one if it has ended, else none."""
    return [span for span in _all_spans_of(batch, pid) if attributes_of(span)["zernel_interval"] == "process"]


def _all_spans_of(batch: Batch, pid: int) -> list[Span]:
    return [
        span
        for resource in batch.spans.resource_spans
        if attributes_of(resource.resource)["process_pid"] == pid
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def name_of(span: Span) -> str:
    """The name of a span, or of the program's own scope that it stands for."""
    return str(attributes_of(span).get("zernel_scope_name", span.name))


def attributes_of(point: HistogramDataPoint | NumberDataPoint | Span | Resource) -> dict[str, object]:
    """The attributes of a point, span or resource, `_` for `.` in their names."""
    return {
        pair.key.replace(".", "_"): getattr(pair.value, str(pair.value.WhichOneof("value")))
        for pair in point.attributes
    }


def calls(batch: Batch, name: str, **attributes: object) -> int:
    """The sum of the counts of the histogram's points."""
    return sum(point.count for point in histogram_points(batch, name, **attributes))
