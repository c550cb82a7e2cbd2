"""Series end after their processes: everywhere, and nothing is left of them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from opentelemetry.proto.metrics.v1.metrics_pb2 import DataPointFlags

from otel_zernel.batch import Batch, points
from otel_zernel.clock import SystemClock
from otel_zernel.exposition import Format, Page
from otel_zernel.otlp.histograms import HdrLayout
from otel_zernel.otlp.points import HISTOGRAM_ATTRIBUTES, NUMBER_ATTRIBUTES, Period, encode_attributes
from otel_zernel.testing import FakeClock, make_context
from otel_zernel_processors.percentiles import PercentilesProcessor
from otel_zernel_receivers.ebpf.budget.sampling import Watched
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit.metrics import CPU_BURST, LAUNCH_LATENCY, batches_of
from otel_zernel_receivers.ebpf.emit.staleness import LINGER, MOST_ENDED, Ends
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.probes.catalogue import Operation
from otel_zernel_receivers.ebpf.probes.loading import Cost
from otel_zernel_receivers.ebpf.session import Watch
from otel_zernel_receivers.ebpf.tables.failures import FailureReading
from otel_zernel_receivers.ebpf.tables.memory import MemoryReading
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, Process
from otel_zernel_receivers.ebpf.tables.series import SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import Readings
from tests.receivers.ebpf.standin import Standin
from tests.receivers.ebpf.watching import attributes_of, metrics_of

ENDED = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK


def of_pid(pid: int, field: int = NUMBER_ATTRIBUTES) -> bytes:
    return encode_attributes({"process.pid": pid}, field)


def ends_of(batches: Iterable[Batch]) -> dict[int, set[str]]:
    """By process, the metrics whose series end."""
    found: dict[int, set[str]] = {}
    for name, metric in metrics_of(Batch.join(list(batches))).items():
        for point in points(metric):
            if point.flags & ENDED:
                found.setdefault(int(str(attributes_of(point)["process_pid"])), set()).add(name)
    return found


def test_series_end_a_minute_after_their_process_and_once() -> None:
    clock = FakeClock()
    ends = Ends(clock.monotonic)
    ends.tell(7, CPU_BURST, of_pid(7))
    ends.tell(7, LAUNCH_LATENCY, of_pid(7, HISTOGRAM_ATTRIBUTES))
    ends.tell(8, CPU_BURST, of_pid(8))
    assert ends.batches({7, 8}, 1) == ends.batches({8}, 1) == []
    clock.advance(LINGER - 1)
    assert ends.batches({8}, 1) == []
    clock.advance(1)
    assert ends_of(ends.batches({8}, 1)) == {7: {CPU_BURST.name, LAUNCH_LATENCY.name}}
    clock.advance(LINGER)
    assert ends.batches({8}, 1) == []


def test_a_pid_that_is_there_again_keeps_its_series() -> None:
    clock = FakeClock()
    ends = Ends(clock.monotonic)
    ends.tell(7, CPU_BURST, of_pid(7))
    ends.batches(set(), 1)
    clock.advance(LINGER)
    assert ends.batches({7}, 1) == []
    assert ends.batches(set(), 1) == [], "the minute begins anew"
    clock.advance(LINGER)
    assert ends_of(ends.batches(set(), 1)) == {7: {CPU_BURST.name}}


def test_beyond_so_many_processes_the_earliest_to_end_do_not_linger() -> None:
    ends = Ends(FakeClock().monotonic)
    for pid in range(1, MOST_ENDED + 3):
        ends.tell(pid, CPU_BURST, of_pid(pid))
        ended = ends.batches(set(), 1)
    assert ends_of(ended) == {2: {CPU_BURST.name}}


@dataclass
class Pipeline:
    """What the receiver tells, through percentiles, on a page."""

    clock: FakeClock = field(default_factory=FakeClock)

    def __post_init__(self) -> None:
        context = make_context("processors", clock=self.clock)
        self.percentiles = PercentilesProcessor(PercentilesProcessor.Config(), context)
        self.ends = Ends(self.clock.monotonic)
        self.page = Page()

    def second(self, processes: Iterable[Process]) -> None:
        """Tells of the processes that live."""
        living = list(processes)
        readings = Readings(
            [
                SeriesReading(process, operation, 0, np.array([300]), np.array([2]), 9, 5, 7)
                for operation in (Operation.RUNTIME_LAUNCH, Operation.COPY_DEFAULT)
                for process in living
            ],
            [MemoryReading(process, 0, 10, 20, 1, 1) for process in living],
            [CpuReading(process, 1, 2, 3, 4, 5, 6, 1, 100) for process in living],
            [FailureReading(process, 0, 2, 1) for process in living],
            {},
            dict.fromkeys(living, 1),
            np.empty(0),
        )
        layout, cost, period = HdrLayout(HIGHEST_NS, 2), Cost(500, 1000, 500), Period(1, 2)
        batches = batches_of(readings, lambda _: True, layout, cost, period, Watched(1.0), self.ends.tell, {}, {})
        for batch in (*batches, *self.ends.batches({process.pid for process in living}, 3)):
            self._hand_on(self.percentiles.process(Batch.from_bytes(metrics=batch.metrics_bytes())))
        self.clock.advance(1)
        if self.clock.monotonic() % 10 == 0:
            self._hand_on(self.percentiles.tick(self.clock.time_ns()))

    def _hand_on(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            self.page.update(Batch.from_bytes(metrics=batch.metrics_bytes()).metrics, self.clock.monotonic())

    def kept(self) -> int:
        """How many series anything is kept of."""
        on_page = sum(len(family.series) for family in self.page._families.values())
        return on_page + len(self.percentiles._table.series) + sum(map(len, self.ends._series.values()))

    def shown(self) -> int:
        """How many lines of the page are a process's."""
        return self.page.render(Format(), self.clock.monotonic()).count(b'process_pid="')


def test_processes_that_come_and_go_leave_as_much_as_was_there_before() -> None:
    pipeline = Pipeline()
    for _ in range(20):
        pipeline.second([])
    before = pipeline.kept()
    for pid in range(1, 301, 5):
        pipeline.second(Process(0, pid + number, pid + number) for number in range(5))
    assert pipeline.shown() > 0
    for _ in range(int(LINGER) + 20):
        pipeline.second([])
    assert (pipeline.kept(), pipeline.shown()) == (before, 0)


class LaterClock(SystemClock):
    """The machine's clock, put forward."""

    later = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.later


def test_every_series_of_a_process_that_was_watched_ends(loadable: None, standin: Standin) -> None:
    clock = LaterClock()
    watch = Watch(EbpfConfig(), make_context(clock=clock))

    def read() -> list[Batch]:
        batches = watch.read_batches()
        watch.taken()
        return batches

    try:
        watch.open()
        with standin.start() as program:
            program.do("load libcudart.so.12")
            watch.attach()
            program.do("cudaLaunchKernel times=10 threads=2")
            program.do("cudaMalloc size=100 times=3")
            program.do("cudaMemcpy size=100 kind=1")
            program.do("cudaLaunchKernel null=1")
            series = _series_of(program.pid, read())
        for _ in range(4):
            series |= _series_of(program.pid, read())
        clock.later = LINGER
        ended = _series_of(program.pid, read(), flags=ENDED)
    finally:
        watch.close()
    assert len(series) > 10
    assert ended == series


def _series_of(pid: int, batches: list[Batch], flags: int = 0) -> set[tuple[str, str]]:
    """The metrics and attributes of the points of a process."""
    return {
        (name, str(sorted(attributes_of(point).items())))
        for name, metric in metrics_of(Batch.join(batches)).items()
        for point in points(metric)
        if attributes_of(point).get("process_pid") == pid and point.flags == flags
    }
