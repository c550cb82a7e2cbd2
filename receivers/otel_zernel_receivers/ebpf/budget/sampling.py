"""Watching the hottest calls for a part of each second only, where more would take too much of a CPU.

Counts are scaled by what was seen between two looks at the kernel's counters, one after the probes are on and one
before they are taken off: the time in between is known exactly, while those of attaching and detaching are not.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.budget.overhead import GROUPS, NEVER_SAMPLED, UPPER_BOUNDS, Group, Overhead, hits_of
from otel_zernel_receivers.ebpf.budget.scaling import Counted, Moment, Pace, Stretch, look
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Loss
from otel_zernel_receivers.ebpf.probes.loading import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey, SeriesReading
from otel_zernel_receivers.ebpf.tables.tables import TableReadings

CYCLE = 1.0
"""Seconds of which calls are watched for a share, at least: switching takes some 5 ms each time."""

_NAMES = {
    Group.LAUNCH: "launches",
    Group.COPY_SYNC: "copies and waits for the GPU",
    Group.COLLECTIVE: "collectives",
}

Switch = tuple[float, Callable[[], None]]


@dataclass(frozen=True, slots=True)
class Watched:
    """For which part of a reading's time calls were watched."""

    seconds: float
    """Of the reading."""
    seconds_of: Mapping[Group, float] = field(default_factory=dict)
    """Of that, those in which the groups that were sampled were watched."""
    shares: dict[Group, float] = field(default_factory=dict)
    """The part of the time, of this and of readings before that saw nothing, in which these groups were watched."""
    calls: dict[SeriesKey, float] = field(default_factory=dict)
    """What series of these groups would have counted in all that time, estimated."""
    excess: float = 0.0
    """What probes that are never sampled take of a CPU beyond `max_overhead`, in the process that they take most of."""

    def is_sample(self, reading: SeriesReading) -> bool:
        """Whether it tells of only a part of the calls."""
        return GROUPS.get(reading.operation) in self.shares

    def told(self, readings: Iterable[SeriesReading]) -> list[SeriesReading]:
        """The readings as they would be if all calls had been watched, those of which that cannot be said left out."""
        scaled = (self._scaled(one) if self.is_sample(one) else one for one in readings if not self._is_torn(one))
        return [one for one in scaled if len(one.counts)]

    def _is_torn(self, reading: SeriesReading) -> bool:
        return reading.operation in UPPER_BOUNDS and bool(self.shares.keys() - {Group.LAUNCH})

    def _scaled(self, reading: SeriesReading) -> SeriesReading:
        counted = int(reading.counts.sum())
        factor = self.calls.get(reading.key, 0.0) / counted if counted else 0.0
        # Each rounded for itself, the few calls of most buckets would all go the same way.
        counts = np.diff(np.rint(np.cumsum(reading.counts) * factor), prepend=0.0).astype(np.int64)
        return replace(
            reading,
            index=reading.index[counts > 0],
            counts=counts[counts > 0],
            sum_ns=round(reading.sum_ns * factor),
            bytes=round(reading.bytes * factor),
        )


class Switchable(Protocol):
    """Probes that can be taken off and put on, a group at a time."""

    def switch_on(self, groups: Iterable[Group]) -> Collection[Group]:
        """Returns those that are on now."""

    def switch_off(self, groups: Iterable[Group]) -> None: ...

    def may_switch_on(self) -> bool:
        """Whether the kernel has had its rest since probes were taken off."""


class Sampling:
    """Switches probes, and keeps the books of the time. One thread at a time may use it."""

    def __init__(
        self, overhead: Overhead, attachments: Switchable, counted: Counted, cost: ProbeCost, context: Context
    ) -> None:
        self._overhead, self._attachments, self._counted, self._cost = overhead, attachments, counted, cost
        self._context = context
        self._read = self._look()
        self._on: dict[Group, Moment] = dict.fromkeys(Group, self._read)
        self._watched = {group: Stretch() for group in Group}
        self._whole = {group: Stretch() for group in Group}
        self._paces: dict[Group, dict[WatchedProcess, Pace]] = {group: {} for group in Group}
        self._interrupted: set[Group] = set()
        self._told_excess = False

    @property
    def is_on(self) -> bool:
        """Whether anything is watched for a part of the time only."""
        return bool(self._overhead.shares) or len(self._on) < len(Group)

    def switches(self, interval: float) -> list[Switch]:
        """What to do in an interval, and how many seconds after its beginning or what was done before. The time at
        which calls are watched is random, since jobs have a rhythm."""
        shares = self._overhead.shares
        switches: list[Switch] = []
        if back := [group for group in Group if group not in self._on and group not in shares]:
            switches.append((0.0, partial(self._begin, back)))
        if leave := [group for group in shares if group in self._on]:
            switches.append((0.0, partial(self._switch_off, leave)))
        return [*switches, *self._window(shares, interval)] if shares else switches

    def _window(self, shares: Mapping[Group, float], interval: float) -> Iterable[Switch]:
        """All begin together and end one after the other."""
        lengths = {group: share * interval for group, share in shares.items()}
        yield random.uniform(0, interval - max(lengths.values())), partial(self._begin, list(shares))  # noqa: S311
        before = 0.0
        for group in sorted(lengths, key=lambda group: lengths[group]):
            yield lengths[group] - before, partial(self._switch_off, [group])
            before = lengths[group]

    def take(self) -> Watched:
        """The time since it was last taken. To be taken before the counters are read, which gives slots back."""
        since, self._read = self._read, self._look()
        whole = Stretch()
        if self._interrupted:
            whole.add(self._counted, since, self._read, self._cost)
        for group in self._interrupted:
            self._whole[group].join(whole)
        for group in self._interrupted & self._on.keys():
            self._watched[group].add(self._counted, self._on[group], self._read, self._cost)
        self._on = dict.fromkeys(self._on, self._read)
        return self._book(self._read.at - since.at)

    def _book(self, seconds: float) -> Watched:
        seconds_of = {group: self._watched[group].seconds for group in self._interrupted}
        watched = Watched(seconds, seconds_of, excess=self._overhead.excess)
        for group in sorted(self._interrupted):
            stretch, whole = self._watched[group], self._whole[group]
            watched.shares[group] = stretch.seconds / whole.seconds if whole.seconds else 0.0
            watched.calls.update(self._estimate(group, stretch, whole))
            self._watched[group] = Stretch()
            if stretch.seconds:  # else what is watched next stands for this time too
                self._whole[group] = Stretch()
        self._interrupted -= {group for group in self._on if watched.shares.get(group)}
        return watched

    def _estimate(self, group: Group, watched: Stretch, whole: Stretch) -> dict[SeriesKey, float]:
        calls = {key: count for key, count in watched.calls.items() if GROUPS.get(key[1]) is group}
        known = {process: pace for process, pace in self._paces[group].items() if process in self._read.hits}
        self._paces[group] = {process: Pace() for process, _, _ in calls} | known
        factors = {
            process: self._paces[group][process].add(process, watched, whole) for process in {key[0] for key in calls}
        }
        return {key: count * factors[key[0]] for key, count in calls.items()}

    def learn(self, readings: TableReadings, watched: Watched) -> None:
        """Takes the cost of what was read into account, and says so when sampling begins and ends."""
        before = self._overhead.shares
        self._overhead.add(hits_of(readings.series, readings.cpu), watched.seconds, watched.seconds_of)
        if before.keys() != self._overhead.shares.keys():
            self._tell()
        if self._overhead.excess and not self._told_excess:
            self._told_excess = True
            self._context.logger.warning(
                "Probes that are never sampled take a process %.1f %% of a CPU more than max_overhead allows: %s",
                100 * self._overhead.excess,
                NEVER_SAMPLED,
            )

    def losses(self, losses: Mapping[Loss, int]) -> dict[Loss, int]:
        """The losses that are none of sampling's: of calls under way as probes came, scaled counts tell."""
        hidden = {Loss.NO_START} if self.is_on else set()
        return {loss: count for loss, count in losses.items() if loss not in hidden}

    def _tell(self) -> None:
        logger, percent = self._context.logger, 100 * self._overhead.load
        if names := ", ".join(_NAMES[group] for group in self._overhead.shares):
            logger.warning("Probes take %.1f %% of a CPU: %s are now watched for a part of each second", percent, names)
        else:
            logger.info("Probes take no more of a CPU than max_overhead")

    def _look(self) -> Moment:
        return look(self._counted, self._context.clock.monotonic())

    def _begin(self, groups: Iterable[Group]) -> None:
        if self._attachments.may_switch_on():
            on = self._attachments.switch_on(groups)
            self._on |= dict.fromkeys(on, self._look())

    def _switch_off(self, groups: Iterable[Group]) -> None:
        now = self._look()
        off = [group for group in groups if group in self._on]
        self._attachments.switch_off(off)
        for group in off:
            self._watched[group].add(self._counted, self._on.pop(group), now, self._cost)
        self._interrupted.update(off)
