"""The evidence before each run of operators: the difference of two snapshots of its thread."""

from dataclasses import replace

from otel_zernel_libraries.training.ledger import STATES, Activity, Snapshot
from otel_zernel_processors.phases.intake.intervals import RUNS, WORK, Evidence, ThreadInterval

_MARKS = RUNS | WORK | {"data_loading"}
_AT_WORK = frozenset(
    {
        None,
        Activity.CPU_WAIT,
        Activity.GPU_WAIT,
        Activity.LAUNCH_BLOCKED,
        Activity.COPY,
        Activity.COLLECTIVE,
    }
)
_BLOCKED = [at for at, state in enumerate(STATES) if state not in _AT_WORK]
"""The states in which a thread is off the CPU by its own will."""
_TIMES, _READ, _FILE_FAULTS = 1, 2, 4
"""The bits of `Snapshot.known`."""
_THREADS = 64
"""Threads whose latest mark is held."""
_COUNTS = 2**32
"""Counts are modulo this."""


def evidence_between(first: Snapshot, last: Snapshot) -> Evidence:
    """The thread's doings between two snapshots."""
    known = first.known & last.known
    minor, major = last.minor_faults - first.minor_faults, last.major_faults - first.major_faults
    return Evidence(
        blocked_ns=max(sum(last.times[at] - first.times[at] for at in _BLOCKED), 0) if known & _TIMES else 0,
        faults=0 if known & _FILE_FAULTS else (minor + major) % _COUNTS,
        file_faults=(last.file_faults - first.file_faults) % _COUNTS if known & _FILE_FAULTS else 0,
        read=max(last.read - first.read, 0) if known & _READ else 0,
        copies=(last.copies - first.copies) % _COUNTS,
    )


class LastMarks:
    """The latest mark of each thread."""

    def __init__(self) -> None:
        self._snapshots: dict[int, Snapshot] = {}

    def add(self, interval: ThreadInterval) -> ThreadInterval:
        """The interval with the evidence since the thread's previous mark, if it is a run. They come by their ends."""
        if interval.snapshots is None or interval.kind not in _MARKS:
            return interval
        begin, end = interval.snapshots
        mark, operators = self._snapshots.pop(interval.thread, None), interval.operators
        self._snapshots[interval.thread] = end
        if len(self._snapshots) > _THREADS:
            del self._snapshots[next(iter(self._snapshots))]
        if mark is None or operators is None or mark.time > begin.time:
            return interval
        return interval._replace(operators=replace(operators, gap=evidence_between(mark, begin)))
