"""The log records of a session: ends of processes, the stacks of those that train, and what silent ones do now."""

from collections.abc import Collection, Iterator, Sequence

from otel_zernel.batch import Batch
from otel_zernel.component import Context
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.stacks import THREADS
from otel_zernel_receivers.ebpf.config import EbpfConfig
from otel_zernel_receivers.ebpf.emit.ends import EndLog, ProcessEnd
from otel_zernel_receivers.ebpf.emit.log_records import info_record, log_batch
from otel_zernel_receivers.ebpf.emit.stacks import StackLog
from otel_zernel_receivers.ebpf.hangs.collectives import OpenCollectives
from otel_zernel_receivers.ebpf.hangs.silence import SilentProcesses
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.sampler.sampler import Sampler
from otel_zernel_receivers.ebpf.tables.tables import TableReadings, Tables


class Records:
    """Makes the log records of each reading. One thread at a time may use it."""

    def __init__(
        self,
        config: EbpfConfig,
        context: Context,
        tables: Tables,
        identities: Identities,
        sampler: Sampler,
        offset_ns: int,
    ) -> None:
        """`offset_ns` is the offset from CLOCK_MONOTONIC to Unix time."""
        self._is_wanted, self._with_stacks = "logs" in context.signals, bool(config.stacks)
        self._tables, self._identities = tables, identities
        self._ends = EndLog(identities, context.clock.monotonic, context.logger, offset_ns)
        self._stacks = StackLog(identities, sampler.lines, context.drop)
        self._silent = SilentProcesses(
            tables.rows, tables.workers, tables.threads, OpenCollectives(tables.maps, tables.rows), identities.folder
        )

    def note_scan(self, pytorch: Collection[int]) -> None:
        """Notes the pids of the processes that have loaded PyTorch."""
        self._silent.note_scan(pytorch)

    def ends(self, readings: TableReadings) -> list[ProcessEnd]:
        """The processes that have ended, which the collector's own log also says."""
        ends = self._ends.read(readings.events)
        self._ends.log(ends)
        return ends

    def batches(
        self, readings: TableReadings, ends: Sequence[ProcessEnd], time_ns: int, *, is_last: bool
    ) -> Iterator[Batch]:
        """The records of a reading at a Unix time. `is_last`: also those that other readings add up for some time."""
        if not self._is_wanted:
            return
        live = self._tables.rows.live()
        stacks = self._stacks.records(readings.samples, live, time_ns, is_last=is_last) if self._with_stacks else None
        yield from filter(None, (self._ends.records(ends), stacks, self._silences(time_ns)))

    def _silences(self, time_ns: int) -> Batch | None:
        return log_batch(
            (
                self._identities.attributes_of(process),
                info_record(semconv.PROCESS_THREADS, THREADS.write(threads), time_ns),
            )
            for process, threads in self._silent.read()
            if self._identities.is_selected(process)
        )
