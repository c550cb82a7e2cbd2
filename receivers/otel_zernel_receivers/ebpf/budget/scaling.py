"""Estimates the calls of a whole period from the calls of the part with probes on.

Probes slow a job that only launches, so it makes fewer calls per second with probes on. Its calls per second of its own
CPU time (without the time in probes) stay the same. A job that waits between calls loses no time to probes. It also has
the same CPU time per call. Therefore the CPU time is the scale, not the clock.
"""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from otel_zernel_receivers.ebpf.budget.overhead import GROUPS, Group, Hits, hits_of
from otel_zernel_receivers.ebpf.probes.calls import Operation
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import HitCount, WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, Totals

_DECAY = 0.9
"""Weight of earlier readings, for each new one. Samples are short, and CPU time has a resolution of some ms."""
_NEVER_NESTED = (Group.COLLECTIVE, None)
_ALL: Mapping[Group, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The kernel's counters at one time."""

    at: float
    """Seconds of the monotonic clock."""
    totals: Totals
    hits: Mapping[WatchedProcess, HitCount]
    """Probe hits since the process began."""
    cpu: Mapping[WatchedProcess, float]
    """CPU time in seconds. A process whose CPU time cannot be read is missing."""


class Counters(Protocol):
    """The kernel's tables."""

    def totals(self) -> Totals: ...

    def hits(self) -> dict[WatchedProcess, HitCount]: ...

    def calls(self, since: Totals, until: Totals) -> dict[SeriesKey, int]: ...


def snapshot(counters: Counters, at: float) -> Snapshot:
    """Reads the counters. `at` is the present time."""
    hits = counters.hits()
    return Snapshot(at, counters.totals(), hits, cpu_seconds(hits))


def cpu_seconds(processes: Iterable[WatchedProcess]) -> dict[WatchedProcess, float]:
    """The CPU time of each process that still runs, in seconds."""
    seconds = {}
    for process in processes:
        try:
            seconds[process] = time.clock_gettime((~process.pid << 3) | 2)  # CPUCLOCK_SCHED, as clock_getcpuclockid(3)
        except OSError:
            continue
    return seconds


def hits_between(begin: Snapshot, end: Snapshot) -> dict[WatchedProcess, HitCount]:
    """The hits of every process that still runs."""
    return {process: hits.since(begin.hits.get(process, HitCount(0))) for process, hits in end.hits.items()}


@dataclass
class Activity:
    """Calls, CPU time and probe time of all processes, summed over one or more periods."""

    seconds: float = 0.0
    """The length of the periods."""
    calls: Counter[SeriesKey] = field(default_factory=Counter)
    own: dict[WatchedProcess, float] = field(default_factory=dict)
    """Seconds of CPU time without the time in probes."""
    probes: dict[WatchedProcess, float] = field(default_factory=dict)
    """Seconds in probes."""

    def add(
        self, counters: Counters, begin: Snapshot, end: Snapshot, cost: ProbeCost, watched: Mapping[Group, float] = _ALL
    ) -> None:
        """Adds the period between two snapshots. No slot may have been freed between them. `watched` are the seconds
        with the probes of a group on; default: all."""
        calls = counters.calls(begin.totals, end.totals)
        self.seconds += end.at - begin.at
        self.calls.update(calls)
        probes = probe_seconds(calls, hits_between(begin, end), cost, end.at - begin.at, watched)
        for process in begin.cpu.keys() & end.cpu.keys() & probes.keys():
            own = end.cpu[process] - begin.cpu[process] - probes[process]
            self._add_cpu(process, own, probes[process])

    def add_time(self, other: "Activity") -> None:
        """Adds the length and the CPU time of other periods, but not their calls."""
        self.seconds += other.seconds
        for process, own in other.own.items():
            self._add_cpu(process, own, other.probes[process])

    def _add_cpu(self, process: WatchedProcess, own: float, probes: float) -> None:
        self.own[process] = self.own.get(process, 0.0) + own
        self.probes[process] = self.probes.get(process, 0.0) + probes


def probe_seconds(
    calls: Mapping[SeriesKey, int],
    hits: Mapping[WatchedProcess, HitCount],
    cost: ProbeCost,
    seconds: float,
    watched: Mapping[Group, float] = _ALL,
) -> dict[WatchedProcess, float]:
    """The seconds that probes took of each process in `seconds`. Hits that no call explains are calls inside other
    calls. `watched` are the seconds with the probes of a group on; default: all."""
    counted: Counter[WatchedProcess] = Counter()
    may_nest: Counter[WatchedProcess] = Counter()
    for (process, operation, _), number in calls.items():
        if group := GROUPS.get(operation):
            counted[process] += number
            may_nest[process] += number * (group not in _NEVER_NESTED and operation != Operation.DRIVER_LAUNCH)
    rates = {hit.process: _rate(hit, seconds, watched) for hit in hits_of(calls, hits)}
    by_process = {}
    for process, count in hits.items():
        paid = cost.at(rates[process])
        nested = min(max(count.with_return - counted[process], 0), may_nest[process])
        whole = count.with_return - nested
        spent_ns = whole * paid.call_ns + nested * paid.nested_ns + count.entries * paid.entry_ns
        by_process[process] = spent_ns / 1e9
    return by_process


def _rate(hits: Hits, seconds: float, watched: Mapping[Group, float]) -> float:
    """Hits per second while the probes are on: in a short sample of a job at full speed, the caches stay warm."""
    if not seconds:
        return 0.0
    sampled = sum(number / (watched.get(group) or seconds) for group, number in hits.sampled.items())
    return sampled + hits.others / seconds


@dataclass
class SpeedRatio:
    """How much faster one process runs with probes off, as an average over the last readings."""

    _watched: float = 0.0
    _elapsed: float = 0.0
    _probes: float = 0.0
    _own_watched: float = 0.0
    _own_elapsed: float = 0.0

    def scale(self, process: WatchedProcess, watched: Activity, elapsed: Activity) -> float:
        """Adds a reading. Returns the ratio of calls in the `elapsed` time to calls in the `watched` part of it."""
        if process in watched.own and process in elapsed.own:
            self._watched = _DECAY * self._watched + watched.seconds
            self._elapsed = _DECAY * self._elapsed + elapsed.seconds
            self._probes = _DECAY * self._probes + watched.probes[process]
            self._own_watched = _DECAY * self._own_watched + watched.own[process]
            self._own_elapsed = _DECAY * self._own_elapsed + elapsed.own[process]
        return elapsed.seconds / watched.seconds * self._ratio()

    def _ratio(self) -> float:
        """At least 1: probes make no job faster. At most the ratio at which every ns in a probe delayed the job."""
        left = self._watched - self._probes
        if min(self._own_watched, self._own_elapsed, left) <= 0:
            return 1.0
        by_own_time = (self._own_elapsed / self._elapsed) / (self._own_watched / self._watched)
        return min(max(by_own_time, 1.0), self._watched / left)
