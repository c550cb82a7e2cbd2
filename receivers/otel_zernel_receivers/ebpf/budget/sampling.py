"""Sampling: the probes of the most frequent calls are on for a part of each second only.

Counts are scaled by what was counted between two snapshots of the kernel's counters. The first is from after the probes
are on, the second from before they are taken off. The time between them is known exactly; the time that attaching and
detaching take is not.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from otel_zernel.component import Context
from otel_zernel_receivers.ebpf.budget.coverage import Coverage
from otel_zernel_receivers.ebpf.budget.group_sample import GroupSample
from otel_zernel_receivers.ebpf.budget.overhead import NEVER_SAMPLED, SECOND, Group, Overhead, hits_of
from otel_zernel_receivers.ebpf.budget.scaling import Activity, Counters, Snapshot, hits_between, snapshot
from otel_zernel_receivers.ebpf.kernel.kernel_structs import Loss
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.tables import TableReadings

CYCLE = 1.0
"""The least seconds between readings with sampling: switching probes takes some 5 ms each time."""

UNKNOWN_WITHOUT_OPERATORS = "forward passes without a DataLoader, losses, evaluation, inference"
"""The positions in a training loop that only operators show."""

UNKNOWN_WITHOUT_IN_PLACE = "averages of weights, optimizers without a class"
"""The positions that only operators on one tensor show."""

_NAMES = {
    Group.LAUNCH: "launches",
    Group.COPY_SYNC: "copies and waits for the GPU",
    Group.COLLECTIVE: "collectives",
    Group.IN_PLACE: f"operators on one tensor (meanwhile unknown: {UNKNOWN_WITHOUT_IN_PLACE})",
    Group.OPERATORS: f"operators of models (meanwhile unknown: {UNKNOWN_WITHOUT_OPERATORS})",
}


class Switch(NamedTuple):
    """A change of probes that is due within an interval."""

    delay: float
    """Seconds after the start of the interval, or after the switch before."""
    apply: Callable[[], None]


class Switchable(Protocol):
    """Probes that can be put on and taken off, a group at a time."""

    def switch_on(self, groups: Iterable[Group]) -> Collection[Group]:
        """Returns the groups whose probes are on."""

    def switch_off(self, groups: Iterable[Group]) -> None: ...

    def may_switch_on(self) -> bool:
        """Whether the kernel has finished taking probes off, and some time has passed since."""


class Sampling:
    """Switches probes and measures the time they are on. One thread at a time may use it."""

    def __init__(
        self, overhead: Overhead, probes: Switchable, counters: Counters, cost: ProbeCost, context: Context
    ) -> None:
        """The probes of all groups must be on."""
        self._overhead, self._probes, self._counters, self._cost = overhead, probes, counters, cost
        self._context = context
        self._last_reading = self._last_check = self._snapshot()
        self._groups = {group: GroupSample(group, counters, cost, self._last_reading) for group in Group}
        self._is_excess_logged = False

    @property
    def is_active(self) -> bool:
        """Whether any group is sampled, or still has its probes off."""
        return bool(self._overhead.shares) or any(group.on_since is None for group in self._groups.values())

    def switches(self, interval: float) -> list[Switch]:
        """The changes of probes in the next interval, in order."""
        shares = self._overhead.shares
        switches: list[Switch] = []
        if back := [group for group in self._groups if not self._is_on(group) and group not in shares]:
            switches.append(Switch(0.0, partial(self._switch_on, back)))
        if leave := [group for group in shares if self._is_on(group)]:
            switches.append(Switch(0.0, partial(self._switch_off, leave)))
        return [*switches, *self._sample(shares, interval)] if shares else switches

    def _sample(self, shares: Mapping[Group, float], interval: float) -> Iterable[Switch]:
        """All groups are put on together and taken off one by one. The start is random, since jobs are periodic."""
        lengths = {group: share * interval for group, share in shares.items()}
        yield Switch(random.uniform(0, interval - max(lengths.values())), partial(self._switch_on, list(shares)))  # noqa: S311
        before = 0.0
        for group in sorted(lengths, key=lambda group: lengths[group]):
            yield Switch(lengths[group] - before, partial(self._switch_off, [group]))
            before = lengths[group]

    def act(self) -> bool:
        """Takes probes off at once if a process has used up its budget of a second, and returns whether it did.

        Call it some times a second.
        """
        if self.is_active or not self._overhead.has_limit:
            return False
        before, now = self._last_check, self._snapshot()
        if now.at - before.at >= SECOND:
            self._last_check = now
        calls = self._counters.calls(before.totals, now.totals)
        self._overhead.act(hits_of(calls, hits_between(before, now)), now.at - before.at)
        if self._overhead.shares:
            self._log_shares()
            self._switch_off(self._overhead.shares)
        return bool(self._overhead.shares)

    def finish_reading(self) -> Coverage:
        """Measures the time since the last call. Call it before the counters are read: reading frees slots."""
        before, self._last_reading = self._last_reading, self._snapshot()
        now = self._last_check = self._last_reading
        samples = [group for group in self._groups.values() if group.is_sample]
        elapsed = Activity()
        if samples:
            watched = {group.group: group.seconds_on(now) for group in samples}
            elapsed.add(self._counters, before, now, self._cost, watched)
        estimates = {group.group: group.finish_reading(elapsed, now) for group in samples}
        for group in self._groups.values():
            if group.on_since:
                group.on_since = now
        return Coverage(
            seconds=now.at - before.at,
            sampled_seconds={group: estimate.seconds for group, estimate in estimates.items()},
            shares={group: estimate.share for group, estimate in estimates.items()},
            calls={key: count for estimate in estimates.values() for key, count in estimate.calls.items()},
            excess=self._overhead.excess,
        )

    @property
    def has_excess(self) -> bool:
        """Whether a process exceeds `max_overhead`, and sampling cannot reduce that."""
        return self._overhead.excess > 0

    def update(self, readings: TableReadings, coverage: Coverage) -> None:
        """Decides from the cost of this reading what to sample next. Logs when sampling begins and ends."""
        before = self._overhead.shares
        hits = {reading.process: reading.hits for reading in readings.cpu}
        sampler_s = {reading.process: reading.seconds for reading in readings.samples}
        self._overhead.add(hits_of(readings.calls(), hits, sampler_s), coverage.seconds, coverage.sampled_seconds)
        if before.keys() != self._overhead.shares.keys():
            self._log_shares()
        if self._overhead.excess and not self._is_excess_logged:
            self._is_excess_logged = True
            self._context.logger.warning(
                "Probes that are never sampled take %.1f %% of a CPU more than `max_overhead` allows in one process. "
                "Raise `max_overhead`, or exclude the process with `processes`. Never sampled: %s",
                100 * self._overhead.excess,
                NEVER_SAMPLED,
            )

    def unexpected(self, losses: Mapping[Loss, int]) -> dict[Loss, int]:
        """The losses that sampling does not explain.

        Calls that began before their probe was on are expected, and scaling includes them.
        """
        hidden = {Loss.NO_START} if self.is_active else set()
        return {loss: count for loss, count in losses.items() if loss not in hidden}

    def _log_shares(self) -> None:
        logger = self._context.logger
        if names := ", ".join(_NAMES[group] for group in self._overhead.shares):
            logger.warning(
                "Probes take %.1f %% of a CPU in one process, more than `max_overhead`. Sampled from here on: %s",
                100 * self._overhead.load,
                names,
            )
        else:
            logger.info("Probes take less of a CPU than `max_overhead`. Sampling ends")

    def _is_on(self, group: Group) -> bool:
        return self._groups[group].on_since is not None

    def _snapshot(self) -> Snapshot:
        return snapshot(self._counters, self._context.clock.monotonic())

    def _switch_on(self, groups: Iterable[Group]) -> None:
        if self._probes.may_switch_on():
            on = self._probes.switch_on(groups)
            now = self._snapshot()
            for group in on:
                self._groups[group].on_since = now

    def _switch_off(self, groups: Iterable[Group]) -> None:
        now = self._snapshot()
        off = [group for group in groups if self._is_on(group)]
        self._probes.switch_off(off)
        for group in off:
            self._groups[group].switch_off(now)
