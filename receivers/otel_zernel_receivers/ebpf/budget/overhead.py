"""For which part of the time calls may be watched, so that probes take no more of a CPU than they may.

What is sampled are calls of which each can be told by itself. What makes a state out of what it has seen is never
sampled: a free without its allocation, the end of a scope without its beginning, or a communicator without its making
would leave wrong what is told for hours after.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES, HOST_ENQUEUE, CallKind, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.tables.process_table import CpuReading, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesReading

AVERAGED = 5.0
"""Seconds that a load is averaged over: a burst at the beginning of a job is no reason to sample."""
STEADY = 3
"""Averages in a row that must allow a larger share before it is taken."""
AIM = 0.7
"""What of the limit sampling aims at. Without sampling, the load may rise to the limit itself: no flapping."""
LEAST = 0.02
"""The least share: 20 ms of a second, below which attaching takes as long as watching."""


class Group(StrEnum):
    """Probes that are taken off and put on together."""

    LAUNCH = "launch"
    COPY_SYNC = "copy_sync"
    """Copies and waits for the GPU: a blocking copy is both."""
    COLLECTIVE = "collective"


NEVER_SAMPLED = "allocations and frees, devices and contexts, communicators and groups, scopes and waits of PyTorch"

KINDS = {
    Group.LAUNCH: (CallKind.CALL,),
    Group.COPY_SYNC: (CallKind.WAIT, CallKind.COPY),
    Group.COLLECTIVE: (CallKind.COLLECTIVE,),
}
"""Of the probes of each group, which are all that there are of these kinds."""
_BY_KIND = {kind: group for group, kinds in KINDS.items() for kind in kinds}
_LAUNCHES = (Operation.RUNTIME_LAUNCH, Operation.DRIVER_LAUNCH, Operation.GRAPH_LAUNCH)
_COPIES = range(Operation.COPY_HOST_TO_HOST, Operation.COPY_DEFAULT + 1)

GROUPS: dict[int, Group] = {
    **dict.fromkeys(_LAUNCHES, Group.LAUNCH),
    **dict.fromkeys((Operation.SYNC, *_COPIES), Group.COPY_SYNC),
    **{number: Group.COLLECTIVE for number, (_, timing) in COLLECTIVES.items() if timing == HOST_ENQUEUE},
}
"""Of each operation that can be sampled."""

UPPER_BOUNDS = frozenset(COLLECTIVES) - frozenset(GROUPS)
"""Operations for which both a collective and the wait that follows must be seen."""

# The runtime is made of driver calls, whose probes are hit too, but whose calls are not counted.
_HITS = {Group.LAUNCH: 2, Group.COPY_SYNC: 2, Group.COLLECTIVE: 1}


def group_of(probe: Probe) -> Group | None:
    """None of what is never sampled."""
    return _BY_KIND.get(probe.kind)


@dataclass(frozen=True, slots=True)
class Hits:
    """Probes that a process has hit."""

    process: WatchedProcess
    sampled: Mapping[Group, float]
    """Those that can be sampled; an estimate, since the kernel counts hits of all probes together."""
    others: float


def hits_of(series: Iterable[SeriesReading], cpu: Iterable[CpuReading]) -> list[Hits]:
    """Tells a reading's hits by group."""
    likely: dict[WatchedProcess, Counter[Group]] = {reading.process: Counter() for reading in cpu}
    for reading in series:
        if (group := GROUPS.get(reading.operation)) and reading.process in likely:
            hits = 1 if reading.operation == Operation.DRIVER_LAUNCH else _HITS[group]
            likely[reading.process][group] += hits * int(reading.counts.sum())
    return [_within(reading, likely[reading.process]) for reading in cpu]


def _within(reading: CpuReading, likely: Counter[Group]) -> Hits:
    total = likely.total()  # 0 also of a series whose calls had been read already when it moved
    part = min(1.0, reading.hits / total) if total else 1.0
    sampled = {group: hits * part for group, hits in likely.items()}
    return Hits(reading.process, sampled, reading.hits - sum(sampled.values()))


@dataclass(slots=True)
class _Load:
    """What probes have taken of a process, s of a CPU."""

    sampled: Counter[Group] = field(default_factory=Counter)
    others: float = 0.0

    @property
    def took(self) -> float:
        return sum(self.sampled.values()) + self.others


class Overhead:
    """Decides for which share of the time each group is watched."""

    def __init__(self, limit: float, call_ns: float) -> None:
        """`limit` is a ratio of one CPU, for each process; 0 is none. `call_ns` is what a hit takes."""
        self.shares: dict[Group, float] = {}
        """Of the time, from `LEAST` to below 1, of the groups that are sampled."""
        self.load = 0.0
        """The most that probes took of any process, at the last decision, as a ratio of one CPU."""
        self.excess = 0.0
        """What of that, at the most, no sampling can take back: how far what is never sampled is above the limit."""
        self._limit, self._call_s = limit, call_ns / 1e9
        self._wanted: deque[dict[Group, float]] = deque(maxlen=STEADY)
        self._restart()

    def add(self, hits: Sequence[Hits], seconds: float, watched: Mapping[Group, float]) -> None:
        """Takes note of what was hit in so many seconds, `watched` of them with the probes of a group."""
        if not self._limit:
            return
        self._seconds += seconds
        self._watched.update({group: watched.get(group, seconds) for group in Group})
        for one in hits:
            load = self._loads.setdefault(one.process, _Load())
            load.sampled.update({group: count * self._call_s for group, count in one.sampled.items()})
            load.others += one.others * self._call_s
        if self._seconds >= AVERAGED and all(self._watched[group] for group in self.shares):
            self._decide()
            self._restart()

    def _restart(self) -> None:
        self._seconds = 0.0
        self._watched: Counter[Group] = Counter()
        self._loads: dict[WatchedProcess, _Load] = {}

    def _decide(self) -> None:
        wanted = [self._shares_of(load) for load in self._loads.values()]
        self._wanted.append(_least(wanted))
        self.shares = _least(self._wanted)
        self.load = max((load.took for load in self._loads.values()), default=0.0) / self._seconds
        self.excess = max((self._excess_of(load) for load in self._loads.values()), default=0.0)

    def _shares_of(self, load: _Load) -> dict[Group, float]:
        """The shares that bring a process to what is aimed at: the hottest group's first, then the next."""
        rates = self._rates_of(load)
        too_much = sum(rates.values()) + load.others / self._seconds - self._limit
        if not self.shares and too_much <= 0:
            return {}
        too_much += (1 - AIM) * self._limit
        shares = {}
        for group in sorted(rates, key=lambda group: -rates[group]):
            share = max(1 - too_much / rates[group], LEAST)
            if share < 1:  # what is left of too much may be no more than rounding
                shares[group] = share
                too_much -= (1 - share) * rates[group]
        return shares

    def _excess_of(self, load: _Load) -> float:
        least = LEAST * sum(self._rates_of(load).values())
        return max(load.others / self._seconds + least - self._limit, 0.0)

    def _rates_of(self, load: _Load) -> dict[Group, float]:
        """What the probes of each group take of a CPU while they are on."""
        return {group: took / self._watched[group] for group, took in load.sampled.items() if took}


def _least(shares: Iterable[Mapping[Group, float]]) -> dict[Group, float]:
    least: dict[Group, float] = {}
    for one in shares:
        for group, share in one.items():
            least[group] = min(share, least.get(group, 1.0))
    return least
