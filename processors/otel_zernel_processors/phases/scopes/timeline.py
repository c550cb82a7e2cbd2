"""The timeline of one process: takes spans in any order, some of them late, and produces closed steps."""

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import median, median_low
from typing import Literal

from otel_zernel_libraries.training.ledger import (
    StepEvent,
    ThreadSamples,
    TimedSnapshot,
    read_snapshots,
    unpacked_snapshots,
)
from otel_zernel_libraries.training.names import TRAINED
from otel_zernel_processors.phases.intake.inputs import PROBE_HITS, PROBE_TIME, InputPoint
from otel_zernel_processors.phases.intake.intervals import WORK, ThreadInterval
from otel_zernel_processors.phases.scopes.attribution import Attribution, attribute
from otel_zernel_processors.phases.scopes.counters import ProbeTime, Throttling
from otel_zernel_processors.phases.scopes.followed import FollowedThreads
from otel_zernel_processors.phases.scopes.gaps import times_between_passes
from otel_zernel_processors.phases.scopes.short_steps import Repeated, ShortSteps
from otel_zernel_processors.phases.scopes.steps import Step, StepKind
from otel_zernel_processors.phases.scopes.structure import events_of
from otel_zernel_processors.phases.scopes.time_ranges import TimeRange, length, union

_COLLECTIVES = 1024
"""Number of collectives held. A wait for the GPU counts as a wait for each of them that is in flight."""
_PASSES = frozenset({"data_loading", "backward", "forward", "inference"})
"""The kinds of intervals that divide time into steps."""
_THREADS = 64
"""Threads whose last step is known."""
_ENVIRONMENTS = 32
"""So many times between passes show how long a step of an environment takes."""
_LOSSES = 64
"""Number of separate periods of loss; beyond it, the two oldest are merged."""

_COMPILES = 20
"""A first step that lasts at least this many times the median"""
_AFTER_FIRST = 5
"""of so many steps after it compiles."""
_SHORTEST_FIRST_NS = 1_000_000_000
"""A shorter first step compiles nothing."""
_FIRST, _HELD = 4, 512
"""So many steps show whether a loop computes in its gaps. No more of them than the second number wait for samples,"""
_PATIENCE_NS, _FIRST_SAMPLE_NS = 5_000_000_000, 2_000_000_000
"""and no longer than this for enough, and for the first one."""

_order: Callable[[ThreadInterval], tuple[int, int, int, str, str]] = itemgetter(slice(5))
"""The order of intervals, and the identity of each: end, start, thread, kind and name."""


@dataclass(slots=True)
class ClosedStep:
    """A step that does not change any more."""

    step: Step
    collectives: list[ThreadInterval]
    """The collectives that began in the step, on any thread."""
    in_flight: list[TimeRange]
    """When collectives were in flight."""
    bridge_ns: int
    samples: ThreadSamples | None = None
    """The samples of its thread in the steps before."""
    throttling: Throttling | None = field(default=None, compare=False)
    """For how long quotas stopped the process."""
    probe_time: ProbeTime | None = field(default=None, compare=False)
    """What the receiver's probes cost the process."""
    short_steps: ShortSteps | None = field(default=None, compare=False)
    """The short steps of its thread before it."""
    _repeated: Repeated | None = None
    _attribution: Attribution | None = None
    _events: Mapping[StepEvent, int] | None = None

    def rehearse(self) -> None:
        """Adds the samples of the step to those of its thread, for the steps before it."""
        self._attribute()

    @property
    def attribution(self) -> Attribution:
        """The phases of the step, computed once, in the order of the steps."""
        if self._attribution is None:
            self._attribution = self._final()
            if self.short_steps and self.short_steps.takes(self.step):
                self.short_steps.add(self.step, self._attribution, self.events)
        return self._attribution

    def _final(self) -> Attribution:
        if self.step.kind == "skipped":
            return self.repeated.attribution
        attribution = self._attribute()
        if self.throttling and self.throttling.is_limited:
            return attribution._replace(segments=self.throttling.divided(attribution.segments))
        return attribution

    def _attribute(self) -> Attribution:
        of_hit = self.probe_time.of_hit if self.probe_time else 0.0
        return attribute(self.step, self.in_flight, self.bridge_ns, self.samples, of_hit)

    @property
    def events(self) -> Mapping[StepEvent, int]:
        """What happens how often in the step, counted once."""
        if self._events is None:
            is_skipped = self.step.kind == "skipped"
            segments = self.attribution.segments
            self._events = self.repeated.events if is_skipped else events_of(self.step, self.collectives, segments)
        return self._events

    @property
    def repeated(self) -> Repeated:
        """Of the kind `skipped`: what its steps count as, computed once."""
        if self._repeated is None:
            self._repeated = (self.short_steps or ShortSteps()).repeated(self.step)
        return self._repeated


class FirstGaps:
    """Holds the first steps of one thread without a loader until there are samples enough to divide the gaps between
    its steps, if it computes in them."""

    def __init__(self) -> None:
        self._held: list[ClosedStep] = []
        self._is_known = False

    def add(self, steps: Iterable[ClosedStep]) -> list[ClosedStep]:
        """Adds the next steps; returns those that are not held any more."""
        if self._is_known:
            return [*steps]
        for closed in steps:
            if closed.step.kind != "skipped":
                closed.rehearse()
            self._held.append(closed)
        return [] if self._waits() else self.end()

    def _waits(self) -> bool:
        if not self._held:
            return True
        last = self._held[-1]
        lasted = last.step.end - self._held[0].step.start
        if last.step.boundary == "loader" or last.samples is None or len(self._held) >= _HELD:
            return False
        patience = _PATIENCE_NS if last.samples.has_gaps else _FIRST_SAMPLE_NS
        return lasted < patience and (len(self._held) < _FIRST or last.samples.lacks_gaps(lasted))

    def end(self) -> list[ClosedStep]:
        """All that is held."""
        held, self._held, self._is_known = self._held, [], True
        return held


class FirstSteps:
    """Holds the first step of one thread, and the steps after it, until it is known whether it compiles: whether it
    lasts many times as long as those after it. Then `FirstGaps` may hold them."""

    def __init__(self) -> None:
        self._held: list[ClosedStep] = []
        self._is_known = False
        self._gaps = FirstGaps()

    def add(self, closed: ClosedStep) -> list[ClosedStep]:
        """Adds the next step; returns those that are not held any more."""
        return self._gaps.add(self._released(closed))

    def _released(self, closed: ClosedStep) -> list[ClosedStep]:
        step, trains = closed.step, closed.step.kind in TRAINED
        if self._is_known:
            return [closed]
        if not self._held and not (trains and step.end - step.start >= _SHORTEST_FIRST_NS):
            self._is_known = trains
            return [closed]
        self._held.append(closed)
        first, *others = (held.step for held in self._held)
        lasted = first.end - first.start
        after = [later.end - later.start for later in others if later.kind in TRAINED]
        if len(after) < _AFTER_FIRST and step.end - first.end < lasted:
            return []
        first.compiles = len(after) >= _AFTER_FIRST and lasted >= _COMPILES * median(after[:_AFTER_FIRST])
        return self._take()

    def end(self) -> list[ClosedStep]:
        """All that is held."""
        return [*self._gaps.end(), *self._take()]

    def _take(self) -> list[ClosedStep]:
        held, self._held, self._is_known = self._held, [], True
        return held


@dataclass(slots=True)
class _LatestSteps:
    """What the latest steps of one thread leave to its next one."""

    kind: StepKind | Literal[""] = ""
    snapshot: TimedSnapshot | None = None
    """The last one."""
    samples: ThreadSamples | None = None
    environments: deque[int] = field(default_factory=lambda: deque(maxlen=_ENVIRONMENTS))
    """The latest times (ns) between two passes without gradients."""
    short_steps: ShortSteps = field(default_factory=ShortSteps)

    def add(self, step: Step, bridge_ns: int) -> None:
        """Adds the next step, and gives it what it needs of those before."""
        step.follows_inference, self.kind = self.kind == "inference", step.kind
        if times := times_between_passes(step.intervals, bridge_ns):
            self.environments.extend(times)
        if self.environments:
            step.environments = tuple(self.environments)
        if snapshots := _snapshots_in(step.intervals):  # a step begins where another ends
            self.samples = self.samples or ThreadSamples()
            step.snapshots = [self.snapshot, *snapshots] if self.snapshot else snapshots
            within = (snapshot for snapshot in step.snapshots if snapshot[0] <= step.end)
            self.snapshot = max(within, key=itemgetter(0), default=snapshots[0])


class Timeline:
    """Sorts the intervals of a process and cuts those of its training threads into steps.

    Intervals are processed in the order of their ends, so the same spans always give the same steps, however they are
    divided into batches.
    """

    def __init__(self, bridge_ns: int, max_intervals: int, drop: Callable[[int, str], None] | None = None) -> None:
        """Holds at most `max_intervals` intervals. See `scopes.attribution` for `bridge_ns`. `drop` counts collectives
        that are discarded before their step is closed."""
        self._bridge_ns = bridge_ns
        self._max_intervals = max_intervals
        self._drop = drop
        self._waiting: list[ThreadInterval] = []
        self._first = 0
        self._in_order = True
        self._last: tuple[int, int, int, str, str] | None = None
        self._throttling, self._probe_time = Throttling(), ProbeTime()
        self._threads = FollowedThreads(bridge_ns, max_intervals)
        self._collectives: deque[ThreadInterval] = deque(maxlen=_COLLECTIVES)
        self._losses: list[TimeRange] = []
        self._first_steps: defaultdict[int, FirstSteps] = defaultdict(FirstSteps)
        """By thread."""
        self._latest: dict[int, _LatestSteps] = {}
        """By thread, the one that was silent for the longest time first."""
        self._doubtful: list[TimeRange] = []
        self._began = self._closed_until = 0
        self.doubtful_ns = 0
        """Time of steps that were closed before the loss of events in them was known."""
        self.has_scopes = False
        """Whether any thread has loaded data, computed or trained."""
        self.has_passes = False
        """Whether any thread has loaded data or computed. Without it there are no steps."""
        self.until = 0
        """All intervals up to this time (ns) are processed; later ones with an earlier end are late."""
        self.last_end = 0
        """The latest end (ns) of an interval."""

    def add_time(self, point: InputPoint) -> None:
        """Adds a point of a counter that divides the time of threads."""
        if point.name in (PROBE_HITS, PROBE_TIME):
            self._probe_time.add(point)
        else:
            self._throttling.add(point)

    def add(self, interval: ThreadInterval) -> str | None:
        """Adds an interval; returns None, or the reason why it is dropped. The time of a dropped interval becomes
        unknown."""
        end = interval.end
        late = end <= self.until
        if late or len(self._waiting) >= self._max_intervals:
            self.add_loss(interval.start, end)
            return "late" if late else "max_spans"
        if end < self._first or not self._waiting:
            self._first = end
        if end > self.last_end:
            self.last_end = end
        self._waiting.append(interval)
        self._in_order = False
        if not self.has_passes and (interval.kind in _PASSES or interval.kind in WORK):
            self.has_scopes, self.has_passes = True, interval.kind in _PASSES
        return None

    def add_loss(self, start: int, end: int) -> None:
        """Records that events between these times (ns) were lost."""
        if start < self._closed_until:
            self._add_doubtful(max(start, self._began), min(end, self._closed_until))
        if self._losses and start <= self._losses[-1][1] <= end:
            start = min(start, self._losses.pop()[0])
        self._losses.append((start, end))
        if len(self._losses) > _LOSSES:
            (start, first_end), (second_start, end) = self._losses[:2]
            self._losses[:2] = [(min(start, second_start), max(first_end, end))]

    def _add_doubtful(self, start: int, end: int) -> None:
        """Counts time of closed steps, each part of it once."""
        doubtful = union([*self._doubtful, (start, end)])
        self.doubtful_ns += length(doubtful) - length(self._doubtful)
        self._doubtful = doubtful[-_LOSSES:]

    def early_until(self) -> int:
        """When more than half of the room is taken: the time (ns) up to which the oldest intervals are processed early,
        so that half of it is free again. Else 0.

        Most intervals arrive in order, so this rarely makes others late. To drop the newest would lose their time.
        """
        surplus = len(self._waiting) - self._max_intervals // 2
        if surplus <= 0:
            return 0
        self._sort()
        return self._waiting[surplus - 1].end - 1  # intervals that end together stay together

    def is_behind(self, until: int) -> bool:
        """Whether intervals that ended by `until` (ns) are not processed yet."""
        return bool(self._waiting) and self._first <= until

    def advance(self, until: int) -> Iterator[ClosedStep]:
        """Processes the intervals that ended by `until` (ns); yields the steps that this closes."""
        feed = self._threads.feed
        for interval in self._next(until) if self.is_behind(until) else ():
            order = _order(interval)
            if order != self._last:  # a batch that is sent again repeats its spans
                if interval.kind == "collective":
                    self._hold(interval)
                for step in feed(interval):
                    yield from self._released(self._closed(step))
            self._last = order
        if not self.is_behind(until):
            self.until = max(self.until, until)

    def end(self) -> Iterator[ClosedStep]:
        """Closes the remaining steps of a process that ended. The last one is unfinished."""
        yield from self.advance(max(self.until, self.last_end))
        for step in self._threads.end():
            yield from self._released(self._closed(step))
        for first in self._first_steps.values():
            yield from first.end()

    def _next(self, until: int) -> list[ThreadInterval]:
        """Removes the intervals that come next. Most arrive in order, which makes sorting them cheap."""
        waiting = self._waiting
        self._sort()
        ready = bisect_right(waiting, until, key=itemgetter(0))
        some = waiting[:ready]
        del waiting[:ready]
        self._first = waiting[0].end if waiting else 0
        return some

    def _sort(self) -> None:
        if not self._in_order:
            self._waiting.sort(key=_order)
            self._in_order = True

    def _hold(self, collective: ThreadInterval) -> None:
        """Holds a collective for the steps that are not closed yet."""
        if len(self._collectives) == _COLLECTIVES and self._drop:
            begins = self._threads.begins
            if begins is not None and self._collectives[0].end > begins:
                self._drop(1, "max_collectives")
        self._collectives.append(collective)

    def _released(self, closed: ClosedStep) -> list[ClosedStep]:
        """The steps that wait no longer: the first one of a thread waits until it is known whether it compiles."""
        thread = closed.step.thread
        if thread not in self._first_steps and len(self._first_steps) >= _THREADS:
            return [closed]
        return self._first_steps[thread].add(closed)

    def _closed(self, step: Step) -> ClosedStep:
        if self._losses:
            step.losses = [loss for loss in self._losses if loss[0] < step.end and step.start < loss[1]]
        latest = self._latest.pop(step.thread, None) or _LatestSteps()
        self._latest[step.thread] = latest
        if len(self._latest) > _THREADS:
            del self._latest[next(iter(self._latest))]
        latest.add(step, self._bridge_ns)
        self._began, self._closed_until = self._began or step.start, max(self._closed_until, step.end)
        if not self._collectives:
            return self._made(step, [], [], latest)
        in_flight = [(collective.start, collective.end) for collective in self._collectives if collective.in_flight]
        began = [collective for collective in self._collectives if step.start <= collective.start < step.end]
        begins = min(self._threads.begins or step.end, step.end)
        while self._collectives and self._collectives[0].end <= begins:
            self._collectives.popleft()
        return self._made(step, began, in_flight, latest)

    def _made(
        self, step: Step, began: list[ThreadInterval], in_flight: list[TimeRange], latest: _LatestSteps
    ) -> ClosedStep:
        of_process = self._bridge_ns, latest.samples, self._throttling, self._probe_time
        return ClosedStep(step, began, in_flight, *of_process, latest.short_steps)


def _snapshots_in(intervals: Sequence[ThreadInterval]) -> list[TimedSnapshot]:
    """The snapshots of intervals of one thread, in the order of the intervals.

    All have one clock. Its distance to Unix time is the median over the edges of the spans: a snapshot is taken some us
    from its edge, and that of a wait of c10d may be far from it.
    """
    packed = [interval.snapshots for interval in intervals if interval.snapshots]
    if not packed:
        return []
    snapshots = read_snapshots(unpacked_snapshots(packed))
    edges = [edge for interval in intervals if interval.snapshots for edge in (interval.start, interval.end)]
    distance = median_low([edge - snapshot.time for edge, snapshot in zip(edges, snapshots, strict=True)])
    return [(snapshot.time + distance, snapshot) for snapshot in snapshots]
