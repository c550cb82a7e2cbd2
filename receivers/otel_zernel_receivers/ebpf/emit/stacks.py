"""The Python stacks of training processes, as log records: `otel_zernel_libraries.training.stacks` has their form."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_zernel.batch import Batch
from otel_zernel_libraries.training import semconv
from otel_zernel_libraries.training.ledger import Activity
from otel_zernel_libraries.training.ledger.snapshots import SAMPLED
from otel_zernel_libraries.training.stacks import MOST_LINES, MOST_STACKS, STACKS, CodeLine, ProcessStacks, StackTime
from otel_zernel_receivers.ebpf.emit.log_records import info_record, log_batch
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Code, Interval, ThreadState
from otel_zernel_receivers.ebpf.processes.identities import Identities
from otel_zernel_receivers.ebpf.sampler.stack_lines import PythonStack, StackLines
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.samples import SampledProcess, SampledStack, SamplesReading
from otel_zernel_receivers.ebpf.tables.thread_times import ACTIVITIES

INTERVAL_NS: Final = 5_000_000_000
"""Between two records of a process. A record of 60 stacks takes a millisecond to make."""
_MOST: Final = 4096
"""Stacks of a process between two records, with the places where they were seen."""
_CALLS: Final[Mapping[int, Activity]] = {
    ThreadState.GPU_WAIT: Activity.GPU_WAIT,
    ThreadState.COPY: Activity.COPY,
    ThreadState.COLLECTIVE: Activity.COLLECTIVE,
    ThreadState.SETTLING: Activity.GPU_WAIT,
}
"""The calls of CUDA and NCCL that decide the activity of a thread on the CPU, too: it spins."""


@dataclass(slots=True)
class _Pending:
    """The stacks of a process since its latest record."""

    ns: Counter[SampledStack] = field(default_factory=Counter)
    left_out: int = 0
    """The stacks that there was no room for."""
    left_out_ns: int = 0


class StackLog:
    """Adds up the stacks of each process, and reports them as log records. One thread at a time may use it."""

    def __init__(self, identities: Identities, lines: StackLines, drop: Callable[[int, str], None]) -> None:
        """`drop` counts a loss with its reason."""
        self._identities, self._lines, self._drop = identities, lines, drop
        self._pending: defaultdict[WatchedProcess, _Pending] = defaultdict(_Pending)
        self._recorded_ns = 0

    def records(
        self, readings: Iterable[SamplesReading], live: Collection[WatchedProcess], time_ns: int, *, is_last: bool
    ) -> Batch | None:
        """Adds the samples of a reading. Returns the records that are due; None if there are none.

        A record is due after `INTERVAL_NS`, at the end of its process, and with the last reading.
        """
        for reading in readings:
            self._add(reading)
        is_due = is_last or not 0 <= time_ns - self._recorded_ns < INTERVAL_NS  # a clock may be set back
        if is_due:
            self._recorded_ns = time_ns
        due = {process: self._take(process) for process in [*self._pending] if is_due or process not in live}
        return log_batch(
            (
                self._identities.attributes_of(process),
                info_record(semconv.PROCESS_STACKS, STACKS.write(stacks), time_ns),
            )
            for process, stacks in due.items()
            if self._identities.is_selected(process) and (stacks.stacks or stacks.left_out)
        )

    def _add(self, reading: SamplesReading) -> None:
        pending = self._pending[reading.process]
        if reading.without_frames:
            self._drop(reading.without_frames, "no_frames")
        for stack, count in reading.stacks.items():
            if stack in pending.ns or len(pending.ns) < _MOST:
                pending.ns[stack] += count.ns
            else:
                pending.left_out += 1
                pending.left_out_ns += count.ns

    def _take(self, process: WatchedProcess) -> ProcessStacks:
        pending = self._pending.pop(process)
        sampled = {SampledProcess(process, stack.worker) for stack in pending.ns}
        lines = {of.worker: self._lines.take(of.pid) for of in sampled}
        times: Counter[tuple[SampledStack, PythonStack]] = Counter()
        unread = 0
        for stack, ns in pending.ns.items():
            if of := lines[stack.worker].get(stack.stack):
                times[stack._replace(stack=0), of] += ns  # several instructions have one line
            else:
                unread += 1
        numbers: dict[CodeLine, int] = {}
        stacks: list[StackTime] = []
        left_out_ns = pending.ns.total() + pending.left_out_ns
        for (stack, of), ns in times.most_common(MOST_STACKS):
            if len(numbers) + len(of.lines) <= MOST_LINES:
                stacks.append(_stack_time(stack, of, ns, numbers))
                left_out_ns -= ns
        for count, reason in (unread, "unread_stack"), (len(times) - len(stacks) + pending.left_out, "too_many_stacks"):
            if count:
                self._drop(count, reason)
        return ProcessStacks(lines=tuple(numbers), stacks=tuple(stacks), left_out=left_out_ns / 1e9)


def _stack_time(stack: SampledStack, of: PythonStack, ns: int, numbers: dict[CodeLine, int]) -> StackTime:
    """`numbers` has the lines of the record, and gets new ones."""
    interval = stack.place // 2 - 1
    return StackTime(
        thread=stack.thread,
        worker=stack.worker,
        mark=Interval(interval).name.lower() if interval >= 0 else "",
        is_inside=interval >= 0 and not stack.place % 2,
        activity=_activity(stack),
        seconds=ns / 1e9,
        lines=tuple(numbers.setdefault(line, len(numbers)) for line in of.lines),
        is_cut=of.is_cut,
    )


def _activity(stack: SampledStack) -> Activity:
    if stack.code == Code.NONE:
        return ACTIVITIES.get(stack.state, Activity.UNKNOWN)
    return _CALLS.get(stack.state) or SAMPLED[stack.code] or Activity.UNKNOWN
