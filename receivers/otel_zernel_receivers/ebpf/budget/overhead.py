"""Decides for which part of the time probes may be on, so that they stay below `max_overhead`.

Only calls that are independent of each other are sampled. Calls that change a state are never sampled. A free without
its allocation, a scope's end without its start or a communicator without its creation would make metrics wrong until
the job ends.
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
"""Seconds over which the load is averaged, so that a burst at the start of a job starts no sampling."""
STEADY = 3
"""Consecutive averages that must allow a larger share before it is used."""
AIM = 0.7
"""Ratio of the limit that sampling aims at. It is below 1 so that sampling does not begin and end all the time."""
LEAST = 0.02
"""The least share: 20 ms of a second. Below it, attaching takes longer than the sample."""


class Group(StrEnum):
    """Probes that are put on and taken off together."""

    LAUNCH = "launch"
    COPY_SYNC = "copy_sync"
    """Copies and waits for the GPU. A blocking copy is both."""
    COLLECTIVE = "collective"
    OPERATORS = "operators"
    """Operators of models. While they are sampled, no run of operators is complete, so none is reported."""


NEVER_SAMPLED = "allocations and frees, devices and contexts, communicators and groups, scopes and waits of PyTorch"

GROUP_KINDS = {
    Group.LAUNCH: (CallKind.CALL,),
    Group.COPY_SYNC: (CallKind.WAIT, CallKind.COPY),
    Group.COLLECTIVE: (CallKind.COLLECTIVE,),
    Group.OPERATORS: (CallKind.OPERATOR, CallKind.LOSS, CallKind.REDUCTION, CallKind.SAMPLE, CallKind.UPDATE),
}
"""The kinds of calls of each group. All probes of these kinds are in the group."""
_BY_KIND = {kind: group for group, kinds in GROUP_KINDS.items() for kind in kinds}
_LAUNCHES = (Operation.RUNTIME_LAUNCH, Operation.DRIVER_LAUNCH, Operation.GRAPH_LAUNCH)
_COPIES = range(Operation.COPY_HOST_TO_HOST, Operation.COPY_DEFAULT + 1)

GROUPS: dict[int, Group] = {
    **dict.fromkeys(_LAUNCHES, Group.LAUNCH),
    **dict.fromkeys((Operation.SYNC, *_COPIES), Group.COPY_SYNC),
    **{number: Group.COLLECTIVE for number, (_, timing) in COLLECTIVES.items() if timing == HOST_ENQUEUE},
}
"""The group of each operation that can be sampled."""

UPPER_BOUNDS = frozenset(COLLECTIVES) - frozenset(GROUPS)
"""Operations that are counted from a collective and the wait after it. Both calls must be probed."""

# The runtime calls the driver. These inner calls also hit probes, but they are not counted.
_HITS_PER_CALL = {Group.LAUNCH: 2, Group.COPY_SYNC: 2, Group.COLLECTIVE: 1}
"""Of the groups whose calls are counted."""


def group_of(probe: Probe) -> Group | None:
    """The group of a probe. None if it is never sampled."""
    return _BY_KIND.get(probe.kind)


@dataclass(frozen=True, slots=True)
class Hits:
    """Probe hits of one process in a reading."""

    process: WatchedProcess
    sampled: Mapping[Group, float]
    """Hits of each group. An estimate: the kernel has one counter for the hits of all probes."""
    others: float
    """Hits of probes that are never sampled."""


def hits_of(series: Iterable[SeriesReading], cpu: Iterable[CpuReading]) -> list[Hits]:
    """Divides the hits of each process among the groups."""
    expected: dict[WatchedProcess, Counter[Group]] = {reading.process: Counter() for reading in cpu}
    for reading in series:
        if (group := GROUPS.get(reading.operation)) and reading.process in expected:
            hits = 1 if reading.operation == Operation.DRIVER_LAUNCH else _HITS_PER_CALL[group]
            expected[reading.process][group] += hits * int(reading.counts.sum())
    for one in cpu:
        if one.operator_hits:
            expected[one.process][Group.OPERATORS] = one.operator_hits
    return [_divide(reading, expected[reading.process]) for reading in cpu]


def _divide(reading: CpuReading, expected: Counter[Group]) -> Hits:
    total = expected.total()  # 0 for a series that changed after its calls had been read
    part = min(1.0, reading.hits / total) if total else 1.0
    sampled = {group: hits * part for group, hits in expected.items()}
    return Hits(reading.process, sampled, reading.hits - sum(sampled.values()))


@dataclass(slots=True)
class _Load:
    """Seconds that probes took of one process."""

    sampled: Counter[Group] = field(default_factory=Counter)
    others: float = 0.0

    @property
    def total(self) -> float:
        return sum(self.sampled.values()) + self.others


class Overhead:
    """Decides for which share of the time the probes of each group are on."""

    def __init__(self, limit: float, call_ns: float, entry_ns: float | None = None) -> None:
        """`limit` is a ratio of one CPU, for each process; 0 means no limit. `call_ns` is the cost of a probe hit.

        `entry_ns` is the cost of a hit of a function whose return has no probe; default: `call_ns`.
        """
        self.shares: dict[Group, float] = {}
        """Ratio of the time with probes on, at least `LEAST` and below 1, for each sampled group."""
        self.load = 0.0
        """Ratio of one CPU that probes took at the last decision, in the process with the highest ratio."""
        self.excess = 0.0
        """Ratio of one CPU above the limit that sampling cannot reduce, in the process with the highest ratio."""
        self._limit, self._call_s = limit, call_ns / 1e9
        entry_s = self._call_s if entry_ns is None else entry_ns / 1e9
        self._hit_s = {group: entry_s if group is Group.OPERATORS else self._call_s for group in Group}
        self._wanted: deque[dict[Group, float]] = deque(maxlen=STEADY)
        self._restart()

    def add(self, hits: Sequence[Hits], seconds: float, watched: Mapping[Group, float]) -> None:
        """Adds the hits of `seconds`. `watched` are the seconds with the probes of a group on; default: all."""
        if not self._limit:
            return
        self._seconds += seconds
        self._watched.update({group: watched.get(group, seconds) for group in Group})
        for one in hits:
            load = self._loads.setdefault(one.process, _Load())
            load.sampled.update({group: count * self._hit_s[group] for group, count in one.sampled.items()})
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
        self.load = max((load.total for load in self._loads.values()), default=0.0) / self._seconds
        self.excess = max((self._excess_of(load) for load in self._loads.values()), default=0.0)

    def _shares_of(self, load: _Load) -> dict[Group, float]:
        """The shares that bring a process down to the aim. The most expensive is reduced first, operators last."""
        rates = self._rates_of(load)
        too_much = sum(rates.values()) + load.others / self._seconds - self._limit
        if not self.shares and too_much <= 0:
            return {}
        too_much += (1 - AIM) * self._limit
        shares = {}
        for group in sorted(rates, key=lambda group: (group is Group.OPERATORS, -rates[group])):
            share = max(1 - too_much / rates[group], LEAST)
            if share < 1:  # the remaining excess may be a rounding error
                shares[group] = share
                too_much -= (1 - share) * rates[group]
        return shares

    def _excess_of(self, load: _Load) -> float:
        least = LEAST * sum(self._rates_of(load).values())
        return max(load.others / self._seconds + least - self._limit, 0.0)

    def _rates_of(self, load: _Load) -> dict[Group, float]:
        """Ratio of a CPU that the probes of each group take while they are on."""
        return {group: seconds / self._watched[group] for group, seconds in load.sampled.items() if seconds}


def _least(shares: Iterable[Mapping[Group, float]]) -> dict[Group, float]:
    least: dict[Group, float] = {}
    for one in shares:
        for group, share in one.items():
            least[group] = min(share, least.get(group, 1.0))
    return least
