"""A session: the BPF programs are loaded, and probes are on the libraries of the selected processes."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple, Self

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.budget.overhead import Group, Overhead
from otel_zernel_receivers.ebpf.budget.sampling import CYCLE, Sampling, Switch
from otel_zernel_receivers.ebpf.budget.step_sample import StepSample
from otel_zernel_receivers.ebpf.config import EbpfConfig, StacksConfig
from otel_zernel_receivers.ebpf.emit.encoding import process_resource
from otel_zernel_receivers.ebpf.emit.metrics import MetricEncoder
from otel_zernel_receivers.ebpf.emit.reading_info import MetricEncoding, ReadingInfo, period_between
from otel_zernel_receivers.ebpf.emit.spans import SpanEncoder
from otel_zernel_receivers.ebpf.emit.staleness import StalenessPoints
from otel_zernel_receivers.ebpf.kernel.ring import Wakeup
from otel_zernel_receivers.ebpf.probed_files import ProbedFiles
from otel_zernel_receivers.ebpf.probes.loading import LoadedProbes, load
from otel_zernel_receivers.ebpf.probes.search import PlaceSearch
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.workers import WorkerUsage
from otel_zernel_receivers.ebpf.records import Records
from otel_zernel_receivers.ebpf.sampler.sampler import Sampler
from otel_zernel_receivers.ebpf.scanning import Scanning, selection_of
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.tables import Limits, TableReadings, counted_layout


class EncodedReading(NamedTuple):
    """One reading of the kernel's counters, as OTLP."""

    number: int
    """Of this reading since the session began, from 1."""
    batches: tuple[Batch, ...]
    """Small batches, each of metrics or of spans."""


class Session:
    """Attaches, reads and switches probes. Made by `Session.open`.

    One thread at a time may use it, and another one may call `make_room` meanwhile. Every call may block.
    """

    def __init__(
        self, config: EbpfConfig, context: Context, loaded: LoadedProbes, files: ProbedFiles, wakeup: Wakeup
    ) -> None:
        self.wakeup = wakeup
        """Becomes readable when a process ends. Its last counts should be read soon."""
        self._interval = config.interval
        self._context = context
        self._tables = loaded.tables
        self._identities = Identities(loaded.tables.rows, loaded.tables.workers, selection_of(config))
        self._scanning = Scanning(config, files, self._identities, context.logger)
        self._sampled_before: frozenset[Group] = frozenset()
        self._sampler = Sampler(
            loaded.bpf,
            loaded.tables,
            self._identities.folder,
            config.clock_frequency,
            context.logger,
            finds_lines=bool(config.stacks) and "logs" in context.signals,
        )
        overhead = Overhead(config.max_overhead, loaded.cost)
        self._sampling = Sampling(overhead, files, loaded.tables, loaded.cost, context)
        self._staleness = StalenessPoints(context.clock.monotonic)
        identities = self._identities
        encoding = MetricEncoding(
            counted_layout(config.significant_figures),
            loaded.cost,
            self._staleness.add_series,
            lambda process: process_resource(identities.attributes_of(process)),
        )
        self._metrics = MetricEncoder(encoding, identities.is_selected)
        self._spans = SpanEncoder(identities)
        self._steps = StepSample(config.max_step_rate, config.interval)
        self._workers = WorkerUsage(loaded.tables.rows, loaded.tables.workers, identities.folder)
        self._records = Records(config, context, loaded.tables, identities, self._sampler, self._spans.offset_ns)
        self._number = 0
        self._since_ns = context.clock.time_ns()

    @classmethod
    @contextmanager
    def open(
        cls,
        config: EbpfConfig,
        context: Context,
        loader: Callable[[Limits], LoadedProbes] = load,
        search: PlaceSearch | None = None,
    ) -> Iterator[Self]:
        """Loads the programs; at the end takes all probes off and unloads. Raises Unavailable.

        `search` has files that are searched already. The session closes it, unless it raises Unavailable.
        """
        with closing(loader(limits_of(config))) as loaded:
            _log_mode(loaded, context)
            search = search or PlaceSearch(at_any_cost=config.single_stepped)
            files = ProbedFiles(loaded.bpf, loaded.mode, context, search)
            with closing(files), closing(Wakeup(loaded.bpf.maps["ring"])) as wakeup:
                session = cls(config, context, loaded, files, wakeup)
                with closing(session._sampler):
                    yield session

    def attach(self) -> None:
        """Scans the processes, and probes the libraries that they have mapped."""
        self._sampler.refresh()
        self._scanning.scan(unreadable_python=self._sampler.unreadable)
        self._records.note_scan(self._scanning.pytorch)

    @property
    def interval(self) -> float:
        """Seconds until the next reading."""
        return max(self._interval, CYCLE) if self._sampling.is_active else self._interval

    def switches(self) -> list[Switch]:
        """The changes of probes that are due in the next interval."""
        return self._sampling.switches(self.interval)

    def make_room(self) -> bool:
        """Moves events out of the kernel between two readings, so that its ring buffer has room. Returns whether a
        reading is due, because a process has ended."""
        return self._tables.ring.gather()

    def gather(self) -> bool:
        """Reads what must not wait for a reading. Takes probes off if they cost more than `max_overhead`; returns
        whether it did: then a reading is due."""
        has_acted = self._sampling.act()
        self._sampler.gather()
        return has_acted

    def read(self, *, is_last: bool = False) -> EncodedReading:
        """Everything counted since the last reading. `is_last`: also what other readings add up for some time."""
        self._identities.learn()
        self._sampler.learn()
        self._sampler.gather()
        coverage = self._sampling.finish_reading()
        readings = self._tables.read()
        self._sampling.update(readings, coverage)
        self._sampler.set_running(self._context.clock.monotonic(), is_allowed=not self._sampling.has_excess)
        self._count_losses(readings)
        ends = self._records.ends(readings)
        self._number += 1
        since_ns, self._since_ns = self._since_ns, self._context.clock.time_ns()
        period = period_between(since_ns, self._since_ns)
        sampled = frozenset(coverage.shares)
        missing = self._scanning.missing_marks(without_runs=Group.OPERATORS in sampled)
        workers = self._workers.read()
        limits = self._identities.limits()
        others = workers, ends, limits, self._identities.cpu_taker, self._spans.offset_ns
        info = ReadingInfo(self._number, period, coverage, self._scanning.skipped, missing, *others)
        metrics = self._metrics.batches(readings, info)
        live = {process.pid for process in self.processes()} | missing.keys()
        staleness = self._staleness.due(live, self._since_ns)
        # A run that began before the probes were on again is emitted with the next reading.
        spans = self._spans_of(readings, sampled | self._sampled_before)
        self._sampled_before = sampled
        records = self._records.batches(readings, ends, self._since_ns, is_last=is_last)
        return EncodedReading(self._number, (*metrics, *spans, *records, *staleness))

    def processes(self) -> list[WatchedProcess]:
        """The processes in the kernel's tables: those that are counted, and those that have just ended."""
        return self._tables.rows.held()

    def _count_losses(self, readings: TableReadings) -> None:
        for loss, count in self._sampling.unexpected(readings.losses).items():
            self._context.drop(count, loss.name.lower())
        # /proc could not be read before they ended, so they may be selected or not.
        unknown = (series for series in readings.series if not self._identities.is_identified(series.process))
        if calls := sum(int(series.counts.sum()) for series in unknown):
            self._context.drop(calls, "unknown_process")
        if readings.lost_events:
            self._context.drop(sum(lost.number for lost in readings.lost_events.values()), "ring_full")

    def _spans_of(self, readings: TableReadings, incomplete: frozenset[Group]) -> Iterator[Batch]:
        if len(readings.events) and "traces" in self._context.signals:
            events, skipped = self._steps.take(readings.events)
            yield self._spans.batch(events, incomplete, skipped)


def limits_of(config: EbpfConfig) -> Limits:
    """The sizes of the kernel's tables for a configuration."""
    return Limits(
        config.max_processes,
        config.max_series,
        counted_layout(config.significant_figures),
        config.long_wait,
        samples_workers=bool(config.stacks),
        shortest_wait=(config.stacks or StacksConfig()).off_cpu,  # stacks show positions, too
    )


def _log_mode(loaded: LoadedProbes, context: Context) -> None:
    logger = context.logger
    for reason in loaded.reasons:
        logger.info("A faster way to attach does not work on this kernel: %s", reason)
    logger.info("Attaching by %s; a probe adds %d ns to each latency", loaded.mode, loaded.cost.floor_ns)
    if loaded.refused:
        refused, lost = ", ".join(loaded.refused), " and ".join(loaded.not_counted) or "nothing"
        logger.warning("This kernel refuses BPF programs: %s. Not counted without them: %s", refused, lost)
        context.drop(len(loaded.refused), "program_refused")
