"""How much a job does while it is watched, and while it is not.

Probes slow a job that does nothing but launch, so what it does while it is watched is less than what it does otherwise,
by the clock. By the job's own CPU time, less what probes took of it, it is the same; and a job that waits in between,
for which probes cost no time at all, has as much CPU time for each of its calls either way.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from otel_zernel_receivers.ebpf.budget.overhead import GROUPS, Group
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.loading import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, Totals

_KEPT = 0.9
"""Of what was seen before, with each reading: windows are short, and CPU time moves in ticks of some ms."""
_NOT_NESTED = (Group.COLLECTIVE, None)


@dataclass(frozen=True, slots=True)
class Moment:
    """What there was at one time."""

    at: float
    """Seconds of the clock."""
    totals: Totals
    hits: Mapping[WatchedProcess, int]
    cpu: Mapping[WatchedProcess, float]
    """Seconds that the process has run, where that can be known."""


class Counted(Protocol):
    """The kernel's tables."""

    def totals(self) -> Totals: ...

    def hits(self) -> dict[WatchedProcess, int]: ...

    def calls(self, since: Totals, until: Totals) -> dict[SeriesKey, int]: ...


def look(counted: Counted, at: float) -> Moment:
    """What there is now; `at` is the time."""
    hits = counted.hits()
    return Moment(at, counted.totals(), hits, cpu_seconds(hits))


def cpu_seconds(processes: Iterable[WatchedProcess]) -> dict[WatchedProcess, float]:
    """The time that processes have run, of those that still do."""
    found = {}
    for process in processes:
        try:
            found[process] = time.clock_gettime((~process.pid << 3) | 2)  # CPUCLOCK_SCHED, as clock_getcpuclockid(3)
        except OSError:
            continue
    return found


@dataclass
class Stretch:
    """What was done in some stretches of time together."""

    seconds: float = 0.0
    calls: Counter[SeriesKey] = field(default_factory=Counter)
    own: dict[WatchedProcess, float] = field(default_factory=dict)
    """Seconds of CPU time, less those of probes."""
    probes: dict[WatchedProcess, float] = field(default_factory=dict)
    """The latter."""

    def add(self, counted: Counted, begin: Moment, end: Moment, cost: ProbeCost) -> None:
        """Adds the time between two moments, between which nothing was freed."""
        calls = counted.calls(begin.totals, end.totals)
        self.seconds += end.at - begin.at
        self.calls.update(calls)
        probes = probe_seconds(calls, {one: hits - begin.hits.get(one, 0) for one, hits in end.hits.items()}, cost)
        for process in begin.cpu.keys() & end.cpu.keys() & probes.keys():
            own = end.cpu[process] - begin.cpu[process] - probes[process]
            self._add(process, own, probes[process])

    def join(self, other: "Stretch") -> None:
        """Adds what was done in others."""
        self.seconds += other.seconds
        for process, own in other.own.items():
            self._add(process, own, other.probes[process])

    def _add(self, process: WatchedProcess, own: float, probes: float) -> None:
        self.own[process] = self.own.get(process, 0.0) + own
        self.probes[process] = self.probes.get(process, 0.0) + probes


def probe_seconds(
    calls: Mapping[SeriesKey, int], hits: Mapping[WatchedProcess, int], cost: ProbeCost
) -> dict[WatchedProcess, float]:
    """What probes took of each process."""
    counted: Counter[WatchedProcess] = Counter()
    may_nest: Counter[WatchedProcess] = Counter()
    for (process, operation, _), count in calls.items():
        if group := GROUPS.get(operation):
            counted[process] += count
            may_nest[process] += count * (group not in _NOT_NESTED and operation != Operation.DRIVER_LAUNCH)
    nested = {one: min(max(count - counted[one], 0), may_nest[one]) for one, count in hits.items()}
    return {one: ((hits[one] - nested[one]) * cost.call_ns + nested[one] * cost.nested_ns) / 1e9 for one in hits}


@dataclass
class Pace:
    """How much faster a job is while it is not watched; on average over the last readings."""

    _watched: float = 0.0
    _whole: float = 0.0
    _probes: float = 0.0
    _own_watched: float = 0.0
    _own_whole: float = 0.0

    def add(self, process: WatchedProcess, watched: Stretch, whole: Stretch) -> float:
        """Takes a reading into account; returns the ratio of calls in the whole time to those that were watched."""
        if process in watched.own and process in whole.own:
            self._watched = _KEPT * self._watched + watched.seconds
            self._whole = _KEPT * self._whole + whole.seconds
            self._probes = _KEPT * self._probes + watched.probes[process]
            self._own_watched = _KEPT * self._own_watched + watched.own[process]
            self._own_whole = _KEPT * self._own_whole + whole.own[process]
        return whole.seconds / watched.seconds * self._ratio()

    def _ratio(self) -> float:
        """Probes make no job faster, nor slower by more than the time that they take."""
        left = self._watched - self._probes
        if min(self._own_watched, self._own_whole, left) <= 0:
            return 1.0
        by_own_time = (self._own_whole / self._whole) / (self._own_watched / self._watched)
        return min(max(by_own_time, 1.0), self._watched / left)
