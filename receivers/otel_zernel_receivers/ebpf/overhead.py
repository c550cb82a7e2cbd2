"""How much of the time launches may be watched, so that probes take no more of a CPU than they may.

Launches are what a job calls most. Other calls are never sampled: allocations, scopes and collectives only make sense
if none is missed.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from otel_zernel_receivers.ebpf.probes import Operation
from otel_zernel_receivers.ebpf.rows import CpuReading, Process
from otel_zernel_receivers.ebpf.series import SeriesReading

LAUNCHES = frozenset((Operation.RUNTIME_LAUNCH, Operation.DRIVER_LAUNCH, Operation.GRAPH_LAUNCH))

AVERAGED = 5.0
"""Seconds that a load is averaged over: a burst at the beginning of a job is no reason to sample."""
STEADY = 3
"""Averages in a row that must allow a larger share before it is taken."""
AIM = 0.7
"""What of the limit sampling aims at. Without sampling, the load may rise to the limit itself: no flapping."""
LEAST = 0.02
"""The least share: 20 ms of a second, below which attaching takes as long as watching."""


@dataclass(frozen=True, slots=True)
class Hits:
    """Probes that a process has hit."""

    process: Process
    launches: int
    others: int


def hits_of(series: Iterable[SeriesReading], cpu: Iterable[CpuReading]) -> list[Hits]:
    """Tells a reading's launches from its other hits."""
    launches: Counter[Process] = Counter()
    for reading in series:
        if reading.operation in LAUNCHES:
            # The driver's launch inside of a runtime's is a hit too, but is not counted as a call.
            hits = 1 if reading.operation == Operation.DRIVER_LAUNCH else 2
            launches[reading.process] += hits * int(reading.counts.sum())
    mine = [(reading, min(launches[reading.process], reading.hits)) for reading in cpu]
    return [Hits(reading.process, count, reading.hits - count) for reading, count in mine]


class Overhead:
    """Decides for which share of the time launches are watched."""

    def __init__(self, limit: float, call_ns: float) -> None:
        """`limit` is a ratio of one CPU, for each process; 0 is none. `call_ns` is what a hit takes."""
        self.share = 1.0
        """Of the time, from `LEAST` to 1; 1 is no sampling."""
        self.load = 0.0
        """The most that probes took of any process, at the last decision, as a ratio of one CPU."""
        self._limit, self._call_s = limit, call_ns / 1e9
        self._wanted: deque[float] = deque(maxlen=STEADY)
        self._restart()

    def add(self, hits: Sequence[Hits], seconds: float, watched: float) -> None:
        """Takes note of what was hit in so many seconds, `watched` of them with probes on launches."""
        self._seconds += seconds
        self._watched += watched
        for one in hits:
            self._launches[one.process] += one.launches
            self._others[one.process] += one.others
        if self._limit and self._seconds >= AVERAGED:
            self._decide()
            self._restart()

    def _restart(self) -> None:
        self._seconds = self._watched = 0.0
        self._launches: Counter[Process] = Counter()
        self._others: Counter[Process] = Counter()

    def _decide(self) -> None:
        shares = [self._share_of(process) for process in self._others]
        took = [self._launches[process] + self._others[process] for process in self._others]
        self.load = max(took, default=0) * self._call_s / self._seconds
        self._wanted.append(min(shares, default=1.0))
        self.share = min(self._wanted)

    def _share_of(self, process: Process) -> float:
        launches = self._launches[process] * self._call_s / self._watched if self._watched else 0.0
        others = self._others[process] * self._call_s / self._seconds
        aim = AIM * self._limit
        if not launches or launches + others <= (self._limit if self.share == 1.0 else aim):
            return 1.0
        return max((aim - others) / launches, LEAST)
