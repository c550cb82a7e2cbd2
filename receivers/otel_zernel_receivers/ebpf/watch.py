"""The receiver's work without its waiting: load, find libraries, attach, read. Everything here may block."""

from collections.abc import Callable
from contextlib import ExitStack

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.attaching import attach
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.hdr import Layout
from otel_zernel_receivers.ebpf.identities import Identities
from otel_zernel_receivers.ebpf.libbpf import BpfError
from otel_zernel_receivers.ebpf.libraries import FileKey, Library, find_libraries
from otel_zernel_receivers.ebpf.loading import Loaded, load
from otel_zernel_receivers.ebpf.metrics import batch_of
from otel_zernel_receivers.ebpf.otlp import Period
from otel_zernel_receivers.ebpf.rows import Process
from otel_zernel_receivers.ebpf.spans import SpanMaker
from otel_zernel_receivers.ebpf.tables import Limits


class Watch:
    """Probes at work, from `open` to `close`. One thread at a time may use it."""

    def __init__(self, config: EbpfConfig, context: Context, loader: Callable[[Limits], Loaded] = load) -> None:
        self._context = context
        self._loader = loader
        self._limits = Limits(
            config.max_processes, config.max_series, Layout(config.significant_figures), config.long_wait
        )
        self._attached: set[FileKey] = set()
        self._untaken = Batch()
        self._stack = ExitStack()

    def open(self) -> None:
        """Loads. Raises Unavailable where eBPF does not work."""
        self._loaded = self._loader(self._limits)
        self._stack.callback(self._loaded.close)
        for reason in self._loaded.reasons:
            self._context.logger.info("eBPF: a better way to attach does not work here: %s", reason)
        self._context.logger.info(
            "eBPF: attaching by %s; a probe adds %d ns to what it measures", self._loaded.mode, self._loaded.floor_ns
        )
        self._identities = Identities(self._loaded.tables.rows)
        self._spans = SpanMaker(self._identities)
        self._since_ns = self._context.clock.time_ns()

    def close(self) -> None:
        """Detaches everything and unloads; safe to call twice, and without `open`."""
        self._stack.close()

    def attach(self) -> None:
        """Finds libraries that processes have mapped, and attaches to each file once."""
        for library in find_libraries(skip=self._attached):
            self._attached.add(library.key)
            try:
                link = attach(self._loaded.bpf, self._loaded.mode, library.path, library.places)
            except BpfError as error:
                self._context.logger.warning("Cannot probe %s: %s", library.path, error)
                continue
            self._stack.callback(link.close)
            self._log(library)

    def read(self) -> Batch:
        """What was counted since the last reading, and what of earlier ones is not `taken` yet."""
        self._identities.learn()
        readings = self._loaded.tables.read()
        for loss, count in readings.losses.items():
            self._context.drop(count, loss.name.lower())
        if readings.lost_events:
            self._context.drop(sum(readings.lost_events.values()), "ring_full")
        since_ns, self._since_ns = self._since_ns, self._context.clock.time_ns()
        new = batch_of(readings, self._limits.layout, Period(since_ns, self._since_ns))
        spans = Batch(spans=self._spans.spans(readings.events)) if len(readings.events) else Batch()
        self._untaken = Batch.join([self._untaken, new, spans])
        return self._untaken

    def taken(self) -> None:
        """To be called when what `read` gave is downstream."""
        self._untaken = Batch()

    def processes(self) -> list[Process]:
        """The processes that something is kept of: those that are counted, and those that have just ended."""
        return self._loaded.tables.rows.held()

    def _log(self, library: Library) -> None:
        self._context.logger.info("eBPF: probing %d functions of %s", len(library.places), library.path)
