"""Decides for which part of the time probes may be on, so that they stay below `max_overhead`.

Only calls that are independent of each other are sampled. Calls that change a state are never sampled. A free without
its allocation, a scope's end without its start or a communicator without its creation would make metrics wrong until
the job ends.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from otel_zernel_receivers.ebpf.probes.calls import COLLECTIVES, HOST_ENQUEUE, CallKind, Operation
from otel_zernel_receivers.ebpf.probes.catalogue import Probe
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import HitCount, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey

SECOND = 1.0
"""A process whose probes have used up their budget of a second is sampled at once."""
AVERAGED = 5.0
"""Seconds over which the load is averaged before the shares are changed otherwise."""
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
    IN_PLACE = "in_place"
    """Operators that change one tensor: an optimizer may call some for each parameter. While they are sampled, no run
    of them is reported."""


_FIRST = (Group.LAUNCH, Group.IN_PLACE, Group.OPERATORS)
"""The groups that are sampled first, in this order. Launches can be scaled, operators cannot."""
_ENTRY_ONLY = frozenset({Group.IN_PLACE, Group.OPERATORS})
"""The groups whose probes have no return."""


NEVER_SAMPLED = "allocations and frees, devices and contexts, communicators and groups, scopes and waits of PyTorch"

GROUP_KINDS = {
    Group.LAUNCH: (CallKind.CALL,),
    Group.COPY_SYNC: (CallKind.WAIT, CallKind.COPY),
    Group.COLLECTIVE: (CallKind.COLLECTIVE,),
    Group.OPERATORS: (CallKind.OPERATOR, CallKind.LOSS, CallKind.REDUCTION, CallKind.SAMPLE, CallKind.UPDATE),
    Group.IN_PLACE: (CallKind.IN_PLACE,),
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
    sampler_s: float = 0.0
    """Seconds that samples of the running code took."""


def hits_of(
    calls: Mapping[SeriesKey, int],
    hits: Mapping[WatchedProcess, HitCount],
    sampler_s: Mapping[WatchedProcess, float] = MappingProxyType({}),
) -> list[Hits]:
    """Divides the hits of each process among the groups, by the calls of each series."""
    expected: dict[WatchedProcess, Counter[Group]] = {process: Counter() for process in hits}
    for (process, operation, _), count in calls.items():
        if (group := GROUPS.get(operation)) and process in expected:
            expected[process][group] += count * (1 if operation == Operation.DRIVER_LAUNCH else _HITS_PER_CALL[group])
    return [
        replace(_divide(process, count, expected[process]), sampler_s=sampler_s.get(process, 0.0))
        for process, count in hits.items()
    ]


def _divide(process: WatchedProcess, count: HitCount, expected: Counter[Group]) -> Hits:
    for group, hits in ((Group.OPERATORS, count.operators), (Group.IN_PLACE, count.in_place)):
        if hits:
            expected[group] = hits
    total = expected.total()  # 0 for a series that changed after its calls had been read
    part = min(1.0, count.all / total) if total else 1.0
    sampled = {group: number * part for group, number in expected.items()}
    return Hits(process, sampled, count.all - sum(sampled.values()))


@dataclass(slots=True)
class _Window:
    """The hits of some time."""

    seconds: float = 0.0
    watched: Counter[Group] = field(default_factory=Counter)
    """Seconds with the probes of each group on."""
    sampled: dict[WatchedProcess, Counter[Group]] = field(default_factory=dict)
    others: dict[WatchedProcess, float] = field(default_factory=dict)
    sampler_s: dict[WatchedProcess, float] = field(default_factory=dict)

    def add(self, hits: Iterable[Hits], seconds: float, watched: Mapping[Group, float]) -> None:
        self.seconds += seconds
        self.watched.update({group: watched.get(group, seconds) for group in Group})
        for hit in hits:
            self.sampled.setdefault(hit.process, Counter()).update(hit.sampled)
            self.others[hit.process] = self.others.get(hit.process, 0.0) + hit.others
            self.sampler_s[hit.process] = self.sampler_s.get(hit.process, 0.0) + hit.sampler_s

    def loads(self, cost: ProbeCost) -> "list[_Load]":
        """The load of each process."""
        return [self._load(process, cost) for process in self.sampled]

    def _load(self, process: WatchedProcess, cost: ProbeCost) -> "_Load":
        rates = {group: hits / self.watched[group] for group, hits in self.sampled[process].items() if hits}
        others = self.others[process] / self.seconds if self.seconds else 0.0
        sampler = self.sampler_s[process] / self.seconds if self.seconds else 0.0
        cost = cost.at(sum(rates.values()) + others)
        hit_s = {group: (cost.entry_ns if group in _ENTRY_ONLY else cost.call_ns) / 1e9 for group in rates}
        return _Load(
            {group: rate * hit_s[group] for group, rate in rates.items() if hit_s[group] > 0},
            sum(self.sampled[process][group] * hit_s[group] for group in rates),
            others * cost.call_ns / 1e9 + sampler,
            self.seconds,
        )


@dataclass(frozen=True, slots=True)
class _Load:
    """The load of one process in a window."""

    rates: Mapping[Group, float]
    """Ratio of a CPU that the probes of each group take while they are on, above 0: a cost may be measured as 0."""
    sampled_s: float
    """Seconds that the probes of all groups took."""
    others: float
    """Ratio of a CPU of the probes that are never sampled, and of the sampler."""
    seconds: float

    @property
    def spent_s(self) -> float:
        """Seconds that all probes took."""
        return self.sampled_s + self.others * self.seconds


class Overhead:
    """Decides for which share of the time the probes of each group are on."""

    def __init__(self, limit: float, cost: ProbeCost) -> None:
        """`limit` is a ratio of one CPU, for each process; 0 means no limit."""
        self.shares: dict[Group, float] = {}
        """Ratio of the time with probes on, at least `LEAST` and below 1, for each sampled group."""
        self.load = 0.0
        """Ratio of one CPU that probes took at the last decision, in the process with the highest ratio."""
        self.excess = 0.0
        """Ratio of one CPU above the limit that sampling cannot reduce, in the process with the highest ratio."""
        self._limit, self._cost = limit, cost
        self._wanted: deque[dict[Group, float]] = deque(maxlen=STEADY)
        self._average, self._recent = _Window(), _Window()

    @property
    def has_limit(self) -> bool:
        """Whether probes may be sampled at all."""
        return self._limit > 0

    def add(self, hits: Sequence[Hits], seconds: float, watched: Mapping[Group, float]) -> None:
        """Adds the hits of `seconds`. `watched` are the seconds with the probes of a group on; default: all."""
        if not self.has_limit:
            return
        for window in (self._average, self._recent):
            window.add(hits, seconds, watched)
        if self._average.seconds >= AVERAGED and self._knows_all(self._average):
            self._decide(self._average)
            self._average = _Window()
        elif self._is_urgent(self._recent):
            self._decide(self._recent)
            self._average = _Window()
        if self._recent.seconds >= SECOND:
            self._recent = _Window()

    def act(self, hits: Sequence[Hits], seconds: float) -> None:
        """Decides at once if a process has used up its budget. `hits` are those of the last `seconds`, at most a second
        or two, with all probes on. They are added later, too."""
        window = _Window()
        window.add(hits, seconds, {})
        if self._is_urgent(window):
            self._decide(window)

    def _is_urgent(self, window: _Window) -> bool:
        """Whether the probes of a process have taken more than the limit allows in a second, or in a longer window."""
        budget_s = self._limit * max(window.seconds, SECOND)
        return self._knows_all(window) and any(load.spent_s > budget_s for load in window.loads(self._cost))

    def _knows_all(self, window: _Window) -> bool:
        """Whether the window has a sample of every sampled group."""
        return all(window.watched[group] for group in self.shares)

    def _decide(self, window: _Window) -> None:
        loads = window.loads(self._cost)
        self._wanted.append(_least(map(self._shares_of, loads)))
        self.shares = _least(self._wanted)
        self.load = max((load.spent_s / load.seconds for load in loads), default=0.0)
        if window.seconds >= SECOND:  # a shorter one may be a burst
            self.excess = max(map(self._excess_of, loads), default=0.0)

    def _shares_of(self, load: _Load) -> dict[Group, float]:
        """The shares that bring a process down to the aim. Launches are reduced first, then operators on one tensor,
        then those of models, then the most expensive of the others."""
        rates = load.rates
        too_much = sum(rates.values()) + load.others - self._limit
        if not self.shares and too_much <= 0:
            return {}
        too_much += (1 - AIM) * self._limit
        shares = {}
        for group in (*(group_ for group_ in _FIRST if group_ in rates), *self._others(rates)):
            share = max(1 - too_much / rates[group], LEAST)
            if share < 1:  # the remaining excess may be a rounding error
                shares[group] = share
                too_much -= (1 - share) * rates[group]
        return shares

    @staticmethod
    def _others(rates: Mapping[Group, float]) -> list[Group]:
        return sorted(rates.keys() - _FIRST, key=lambda group: -rates[group])

    def _excess_of(self, load: _Load) -> float:
        return max(load.others + LEAST * sum(load.rates.values()) - self._limit, 0.0)


def _least(shares: Iterable[Mapping[Group, float]]) -> dict[Group, float]:
    least: dict[Group, float] = {}
    for shares_ in shares:
        for group, share in shares_.items():
            least[group] = min(share, least.get(group, 1.0))
    return least
