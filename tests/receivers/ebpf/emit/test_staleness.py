"""Series end after their processes, in every component."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_zernel.batch import Batch, points
from otel_zernel.clock import SystemClock
from otel_zernel.otlp.points import HISTOGRAM_ATTRIBUTES, NUMBER_ATTRIBUTES, Period, encode_attributes
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_libraries.histograms.hdr import HdrLayout
from otel_zernel_libraries.prometheus import Format, Page
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit.encoding import process_resource, service_resource
from otel_zernel_receivers.ebpf.emit.families import CPU_BURST, LAUNCH_LATENCY
from otel_zernel_receivers.ebpf.emit.metrics import MetricEncoder
from otel_zernel_receivers.ebpf.emit.reading_info import MetricEncoding, ReadingInfo
from otel_zernel_receivers.ebpf.emit.staleness import LINGER, MAX_LINGERING, StalenessPoints
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.session import Session
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, HitCount, LostEvents, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import TableReadings
from otel_zernel_receivers.ebpf.tables.thread_times import ThreadsReading
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import attributes_of, metrics_of

ENDED = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


JOB = service_resource("job")
RANKED = process_resource({"service.name": "job", "zernel.rank": 3})


def resource_of(process: WatchedProcess) -> bytes:
    return process_resource({"service.name": "job", "process.pid": process.pid})


def of_pid(pid: int, field: int = NUMBER_ATTRIBUTES) -> bytes:
    return encode_attributes({"process.pid": pid}, field)


def staleness_of(batches: Iterable[Batch]) -> dict[int, set[str]]:
    """The metrics with staleness points, by pid."""
    found: dict[int, set[str]] = {}
    for name, metric in metrics_of(Batch.join(list(batches))).items():
        for point in points(metric):
            if point.flags & ENDED:
                found.setdefault(int(str(attributes_of(point)["process_pid"])), set()).add(name)
    return found


def test_a_series_gets_one_staleness_point_a_minute_after_its_process_ended() -> None:
    clock = FakeClock()
    staleness = StalenessPoints(clock.monotonic)
    staleness.add_series(7, JOB, CPU_BURST, of_pid(7))
    staleness.add_series(7, JOB, LAUNCH_LATENCY, of_pid(7, HISTOGRAM_ATTRIBUTES))
    staleness.add_series(8, JOB, CPU_BURST, of_pid(8))
    assert staleness.due({7, 8}, 1) == staleness.due({8}, 1) == []
    clock.advance(LINGER - 1)
    assert staleness.due({8}, 1) == []
    clock.advance(1)
    assert staleness_of(staleness.due({8}, 1)) == {7: {CPU_BURST.name, LAUNCH_LATENCY.name}}
    clock.advance(LINGER)
    assert staleness.due({8}, 1) == []


def test_a_reused_pid_continues_the_same_series() -> None:
    clock = FakeClock()
    staleness = StalenessPoints(clock.monotonic)
    staleness.add_series(7, JOB, CPU_BURST, of_pid(7))
    staleness.due(set(), 1)
    clock.advance(LINGER)
    assert staleness.due({7}, 1) == []
    assert staleness.due(set(), 1) == [], "the minute starts again"
    clock.advance(LINGER)
    assert staleness_of(staleness.due(set(), 1)) == {7: {CPU_BURST.name}}


def test_the_earlier_series_of_a_process_end_once_its_resource_changes() -> None:
    staleness = StalenessPoints(FakeClock().monotonic)
    staleness.add_series(7, JOB, CPU_BURST, of_pid(7))
    assert staleness.due({7}, 1) == []
    staleness.add_series(7, RANKED, CPU_BURST, of_pid(7))
    [ended] = staleness.due({7}, 1)
    assert staleness_of([ended]) == {7: {CPU_BURST.name}}
    assert [resource_metric.resource for resource_metric in ended.metrics.resource_metrics] == [
        Resource.FromString(JOB)
    ]
    assert staleness.due({7}, 1) == []


def test_series_of_the_earliest_of_many_ended_processes_end_at_once() -> None:
    staleness = StalenessPoints(FakeClock().monotonic)
    for pid in range(1, MAX_LINGERING + 3):
        staleness.add_series(pid, JOB, CPU_BURST, of_pid(pid))
        ended = staleness.due(set(), 1)
    assert staleness_of(ended) == {2: {CPU_BURST.name}}


@dataclass
class ReceiverToPage:
    """The receiver's metrics, through the percentiles processor, on a Prometheus page."""

    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        context = make_context("processors", clock=self.clock)
        self.percentiles = PercentilesProcessor(PercentilesProcessor.Config(), context)
        self.staleness = StalenessPoints(self.clock.monotonic)
        layout, cost = HdrLayout(HIGHEST_NS, 2), ProbeCost(500, 1000, 500, 500)
        self.encoder = MetricEncoder(
            MetricEncoding(layout, cost, self.staleness.add_series, resource_of), lambda _: True
        )
        self.page = Page()

    def second(self, processes: Iterable[WatchedProcess]) -> None:
        """A second in which these processes are live."""
        live = list(processes)
        readings = TableReadings(
            [
                SeriesReading(process, operation, 0, np.array([300]), np.array([2]), 9, 5, 7)
                for operation in (Operation.RUNTIME_LAUNCH, Operation.COPY_DEFAULT)
                for process in live
            ],
            [MemoryReading(process, 0, 10, 20, 1, 1) for process in live],
            [CpuReading(process, HitCount(1), 2, 3, 4, 5, 6, 1, 100) for process in live],
            [ThreadsReading(process, {"gpu_wait": 5}, {"gpu_wait": 5}) for process in live],
            [FailureReading(process, 0, 2, 1) for process in live],
            {},
            dict.fromkeys(live, LostEvents(1, 0, 0)),
            np.empty(0),
        )
        batches = self.encoder.batches(readings, ReadingInfo(1, Period(1, 2), Coverage(1.0)))
        for batch in (*batches, *self.staleness.due({process.pid for process in live}, 3)):
            self._emit(self.percentiles.process(Batch.from_bytes(metrics=batch.bytes_of("metrics"))))
        self.clock.advance(1)
        if self.clock.monotonic() % 10 == 0:
            self._emit(self.percentiles.tick(self.clock.time_ns()))

    def _emit(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.page.update(Batch.from_bytes(metrics=batch.bytes_of("metrics")).metrics, self.clock.monotonic())

    def kept(self) -> int:
        """The number of series that the components keep."""
        on_page = sum(len(family.series) for family in self.page._families.values())
        return (
            on_page + len(self.percentiles.aggregation._table.series) + sum(map(len, self.staleness._series.values()))
        )

    def shown(self) -> int:
        """The number of lines on the page that are about a process."""
        return self.page.render(Format(), self.clock.monotonic()).count(b'process_pid="')


def test_ended_processes_leave_no_series_in_any_component() -> None:
    pipeline = ReceiverToPage()
    for _ in range(20):
        pipeline.second([])
    before = pipeline.kept()
    for pid in range(1, 301, 5):
        pipeline.second(WatchedProcess(0, pid + number, pid + number) for number in range(5))
    assert pipeline.shown() > 0
    for _ in range(int(LINGER) + 20):
        pipeline.second([])
    assert (pipeline.kept(), pipeline.shown()) == (before, 0)


class OffsetClock(SystemClock):
    """The machine's clock plus an offset."""

    offset = 0.0
    """Seconds."""

    def monotonic(self) -> float:
        return super().monotonic() + self.offset


def test_every_series_of_a_watched_process_gets_a_staleness_point(loadable: None, standin: Standin) -> None:
    clock = OffsetClock()
    with Session.open(EbpfConfig(), make_context(clock=clock)) as session:
        with standin.start(loads=["libcudart.so.12"]) as program:
            session.attach()
            program.do("cudaLaunchKernel times=10 threads=2")
            program.do("cudaMalloc size=100 times=3")
            program.do("cudaMemcpy size=100 kind=1")
            program.do("cudaLaunchKernel null=1")
            series = _series_of(program.pid, session.read().batches)
        for _ in range(4):
            series |= _series_of(program.pid, session.read().batches)
        clock.offset = LINGER
        ended = _series_of(program.pid, session.read().batches, flags=ENDED)
    assert len(series) > 10
    assert ended == series


def _series_of(pid: int, batches: Iterable[Batch], flags: int = 0) -> set[tuple[str, str]]:
    """The metrics and attributes of the points of a process that have these flags."""
    return {
        (name, str(sorted(attributes_of(point).items())))
        for name, metric in metrics_of(Batch.join(list(batches))).items()
        for point in points(metric)
        if attributes_of(point).get("process_pid") == pid and point.flags == flags
    }
