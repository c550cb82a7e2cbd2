"""The sample of one group of probes: the time since its probes are on, and the activity in that time."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from otel_zernel_receivers.ebpf.budget.overhead import GROUPS, Group
from otel_zernel_receivers.ebpf.budget.scaling import Activity, Counters, Snapshot, SpeedRatio
from otel_zernel_receivers.ebpf.probes.cost import ProbeCost
from otel_zernel_receivers.ebpf.tables.process_table import WatchedProcess
from otel_zernel_receivers.ebpf.tables.series import SeriesKey


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """The calls of a sampled group, as if its probes had been on all the time."""

    seconds: float
    """With probes on."""
    share: float
    """Ratio of the time with probes on."""
    calls: Mapping[SeriesKey, float]


@dataclass
class GroupSample:
    """One group of probes.

    A group is sampled from the moment its probes are taken off until a reading at which they are on.
    """

    group: Group
    counters: Counters
    cost: ProbeCost
    on_since: Snapshot | None
    """The snapshot after the probes were put on, or of the last reading. None while they are off."""
    is_sample: bool = False
    """Whether the probes were off for a part of the time since the last reading."""
    _watched: Activity = field(init=False, default_factory=Activity)
    """With the probes on, since the last estimate."""
    _elapsed: Activity = field(init=False, default_factory=Activity)
    """All time since the last estimate in which any probes were on."""
    _ratios: dict[WatchedProcess, SpeedRatio] = field(init=False, default_factory=dict)

    def seconds_on(self, now: Snapshot) -> float:
        """Seconds with the probes on since the last estimate."""
        return self._watched.seconds + (now.at - self.on_since.at if self.on_since else 0.0)

    def switch_off(self, now: Snapshot) -> None:
        """Ends a period with probes on. `now` must be from before the probes are taken off."""
        self._add_watched(now)
        self.on_since = None
        self.is_sample = True

    def finish_reading(self, elapsed: Activity, now: Snapshot) -> GroupEstimate:
        """Estimates the calls since the last estimate. `elapsed` is the time since the last reading."""
        self._elapsed.add_time(elapsed)
        self._add_watched(now)
        estimate = self._estimate(now)
        self._watched = Activity()
        if estimate.seconds:  # otherwise the next sample stands for this time too
            self._elapsed = Activity()
        if self.on_since and estimate.share:
            self.is_sample = False
        return estimate

    def _add_watched(self, now: Snapshot) -> None:
        if self.on_since:
            self._watched.add(self.counters, self.on_since, now, self.cost)

    def _estimate(self, now: Snapshot) -> GroupEstimate:
        watched, elapsed = self._watched, self._elapsed
        calls = {key: count for key, count in watched.calls.items() if GROUPS.get(key[1]) is self.group}
        known = {process: ratio for process, ratio in self._ratios.items() if process in now.hits}
        self._ratios = {process: SpeedRatio() for process, _, _ in calls} | known
        scales = {
            process: self._ratios[process].scale(process, watched, elapsed) for process in {key[0] for key in calls}
        }
        share = watched.seconds / elapsed.seconds if elapsed.seconds else 0.0
        return GroupEstimate(watched.seconds, share, {key: count * scales[key[0]] for key, count in calls.items()})
