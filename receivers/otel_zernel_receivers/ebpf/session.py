"""The receiver's work without its waiting: load, find libraries, attach, read. Everything here may block."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel.otlp.histograms import HdrLayout
from otel_zernel.otlp.points import Period
from otel_zernel_receivers.ebpf.budget.overhead import Overhead
from otel_zernel_receivers.ebpf.budget.sampling import CYCLE, Sampling
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit.metrics import batches_of
from otel_zernel_receivers.ebpf.emit.skipped import LeftOut
from otel_zernel_receivers.ebpf.emit.spans import SpanMaker
from otel_zernel_receivers.ebpf.emit.staleness import Ends
from otel_zernel_receivers.ebpf.kernel.kernel_structs import HIGHEST_NS
from otel_zernel_receivers.ebpf.kernel.ring import Bell
from otel_zernel_receivers.ebpf.probed_files import Attachments
from otel_zernel_receivers.ebpf.probes.loading import Loaded, load
from otel_zernel_receivers.ebpf.probes.marks import Mark
from otel_zernel_receivers.ebpf.processes.frameworks import SeenFrameworks
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.processes.scanner import Scanner, Selection
from otel_zernel_receivers.ebpf.tables.process_table import Process
from otel_zernel_receivers.ebpf.tables.tables import Limits, Readings


class Watch:
    """Probes at work, from `open` to `close`. One thread at a time may use it."""

    def __init__(self, config: EbpfConfig, context: Context, loader: Callable[[Limits], Loaded] = load) -> None:
        self._config = config
        self._context = context
        self._loader = loader
        self._layout = HdrLayout(HIGHEST_NS, config.significant_figures)
        self._selection = Selection(**dict(config.processes))
        self._scanner = Scanner(selection=self._selection)
        self._left_out = LeftOut(context.logger)
        self._frameworks = SeenFrameworks(context.logger)
        self._missing: dict[int, frozenset[Mark]] = {}
        self._untaken: list[Batch] = []
        self._stack = ExitStack()

    def open(self) -> None:
        """Loads. Raises Unavailable where eBPF does not work."""
        config, context = self._config, self._context
        limits = Limits(config.max_processes, config.max_series, self._layout, config.long_wait)
        loaded = self._loader(limits)
        self._stack.callback(loaded.close)
        for reason in loaded.reasons:
            context.logger.info("A better way to attach does not work here: %s", reason)
        context.logger.info(
            "Attaching by %s; a probe adds %d ns to what it measures", loaded.mode, loaded.cost.floor_ns
        )
        if loaded.unseen:
            context.logger.warning("This kernel does not let the receiver count %s", " and ".join(loaded.unseen))
        self._tables, self._cost = loaded.tables, loaded.cost
        self._attachments = Attachments(loaded.bpf, loaded.mode, context, at_any_cost=config.single_stepped)
        self._stack.callback(self._attachments.close)
        overhead = Overhead(config.max_overhead, loaded.cost.call_ns)
        self._sampling = Sampling(overhead, self._attachments, loaded.tables, loaded.cost, context)
        self._identities = Identities(self._tables.rows, self._selection)
        self._ends = Ends(context.clock.monotonic)
        self._spans = SpanMaker(self._identities)
        self._since_ns = context.clock.time_ns()
        self.bell = Bell(loaded.bpf.maps["ring"])
        """Says that a process has ended, which is worth a reading."""
        self._stack.callback(self.bell.close)

    def close(self) -> None:
        """Detaches everything and unloads; safe to call twice, and without `open`."""
        self._stack.close()

    def attach(self) -> None:
        """Finds libraries that processes have mapped, and attaches to each file once."""
        scan = self._scanner.scan()
        self._attachments.update(scan)
        self._missing = self._attachments.missing(scan)
        self._frameworks.take(scan.processes)
        self._identities.scanned(scan)
        self._left_out.take(scan.skipped)

    @property
    def interval(self) -> float:
        """Seconds until the next reading."""
        return max(self._config.interval, CYCLE) if self._sampling.is_on else self._config.interval

    def switches(self) -> list[tuple[float, Callable[[], None]]]:
        """What is to be done within the next interval, and how many seconds after what was done before."""
        return self._sampling.switches(self.interval)

    def gather(self) -> None:
        """Makes room in the kernel for events, between two readings."""
        self._tables.ring.gather()

    def read(self) -> Batch:
        """What was counted since the last reading, and what of earlier ones is not `taken` yet."""
        return Batch.join(self.read_batches())

    def read_batches(self) -> list[Batch]:
        """The same in small batches, the oldest first."""
        self._identities.learn()
        watched = self._sampling.take()
        readings = self._tables.read()
        self._sampling.learn(readings, watched)
        for loss, count in self._sampling.losses(readings.losses).items():
            self._context.drop(count, loss.name.lower())
        if readings.lost_events:
            self._context.drop(sum(readings.lost_events.values()), "ring_full")
        since_ns, self._since_ns = self._since_ns, self._context.clock.time_ns()
        period = Period(since_ns, self._since_ns)
        wants, tell = self._identities.wants, self._ends.tell
        left_out, missing = self._left_out.last, self._missing
        metrics = batches_of(readings, wants, self._layout, self._cost, period, watched, tell, left_out, missing)
        ends = self._ends.batches({process.pid for process in self.processes()} | missing.keys(), self._since_ns)
        self._untaken += [*metrics, *self._spans_of(readings), *ends]
        return list(self._untaken)

    def _spans_of(self, readings: Readings) -> Iterator[Batch]:
        if len(readings.events) and "traces" in self._context.signals:
            yield self._spans.batch(readings.events)

    def taken(self, batch: Batch | None = None) -> None:
        """To be called when what was read is downstream: all of it, or one of the batches."""
        self._untaken = [one for one in self._untaken if batch and one is not batch]

    def processes(self) -> list[Process]:
        """The processes that something is kept of: those that are counted, and those that have just ended."""
        return self._tables.rows.held()
