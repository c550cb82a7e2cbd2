"""The threads of one process whose time is divided into steps."""

from collections import deque
from collections.abc import Iterable

from otel_zernel_processors.phases.intake.intervals import ThreadInterval
from otel_zernel_processors.phases.scopes.steps import Step
from otel_zernel_processors.phases.scopes.threads import ThreadCutter

_OPENS = frozenset({"data_loading", "backward", "forward", "inference", "optimizer"})
"""The kinds that a thread must show to be considered."""
_UPDATES = frozenset({"optimizer", "zero_grad"})
_THREADS = 64
"""Threads considered; beyond it, the one that was quiet for the longest time is given up."""
_EARLY = 64
"""Steps held for a thread that is not followed."""
_RECENT_NS = 60_000_000_000
"""Older ones of these steps are left out."""
_FEW = 64
"""A step with fewer intervals needs no check of its length."""
_STRAYS = 4096
"""Number of updates held that may belong to another thread's backward pass."""


class FollowedThreads:
    """Chooses the threads of a process whose steps count.

    These are all threads that have run a backward pass. If none has, it is the first one that computes, or else the
    first one that loads data. A thread that only loads data, or only runs an optimizer inside the backward pass of
    another, is not followed once another thread trains.
    """

    def __init__(self, bridge_ns: int, max_intervals: int) -> None:
        """A step with `max_intervals` is cut. See `scopes.attribution` for `bridge_ns`."""
        self._bridge_ns = bridge_ns
        self._max_intervals = max_intervals
        self._cutters: dict[int, ThreadCutter] = {}
        self._followed: dict[int, ThreadCutter] = {}
        self._early: dict[int, deque[Step]] = {}
        """The latest steps of threads that are not followed, but may be soon."""
        self._strays: deque[ThreadInterval] = deque(maxlen=_STRAYS)

    @property
    def begins(self) -> int | None:
        """When (ns) the first held step begins; None without one."""
        begins = [cutter.begins for cutter in (self._followed or self._cutters).values()]
        return min((begin for begin in begins if begin is not None), default=None)

    def feed(self, interval: ThreadInterval) -> Iterable[Step]:
        """Adds an interval; returns the steps that it completes."""
        cutter = self._followed.get(interval.thread)
        if cutter is None or not cutter.has_backward:
            return self._feed_other(interval)
        if self._strays and interval.kind == "backward":
            return [*self._adopt(cutter, interval), *self._feed(cutter, interval)]
        loads = cutter.by_loads
        if loads is None:
            return self._feed(cutter, interval)
        cutter.last_end = interval.end
        steps = loads.feed(interval)
        return steps if not steps and loads.pending < _FEW else self._checked(cutter, [*steps, *cutter.leave_loader()])

    def end(self) -> Iterable[Step]:
        """The remaining steps."""
        if not self._followed and self._cutters:
            thread, cutter = next(iter(self._cutters.items()))
            yield from self._early.pop(thread, ())
            self._followed[thread] = cutter
        for cutter in self._followed.values():
            yield from self._of(cutter, cutter.end())

    def _feed(self, cutter: ThreadCutter, interval: ThreadInterval) -> list[Step]:
        return self._checked(cutter, cutter.feed(interval))

    def _checked(self, cutter: ThreadCutter, steps: Iterable[Step]) -> list[Step]:
        """The steps of a thread. A step with too many intervals is cut."""
        if cutter.pending >= self._max_intervals:
            steps = [*steps, *cutter.cut()]
            cutter.was_full = True
        return self._of(cutter, steps)

    def _of(self, cutter: ThreadCutter, steps: Iterable[Step]) -> list[Step]:
        steps = list(steps)
        for step in steps:
            step.thread = cutter.thread
            step.is_fed = any(cutter_.loads for cutter_ in self._cutters.values() if cutter_ is not cutter)
        return steps

    def _feed_other(self, interval: ThreadInterval) -> list[Step]:
        """Adds an interval of a thread that has not run a backward pass yet."""
        thread, kind = interval.thread, interval.kind
        if kind in _UPDATES:
            self._strays.append(interval)
        cutter, steps = self._cutters.get(thread), []
        if cutter is None:
            if kind not in _OPENS:
                return []
            steps += self._make_room()
            cutter = self._cutters[thread] = ThreadCutter(thread, self._bridge_ns)
        if kind == "backward" and self._strays:
            steps += self._adopt(cutter, interval)
        made = self._feed(cutter, interval)
        if kind in _OPENS or cutter.was_full:
            steps += self._choose()
        if thread in self._followed:
            steps += made
        elif made:
            self._early.setdefault(thread, deque(maxlen=_EARLY)).extend(made)
        return steps

    def _adopt(self, cutter: ThreadCutter, backward: ThreadInterval) -> list[Step]:
        """Feeds the updates that other threads made inside a backward pass: autograd's own threads run its hooks."""
        steps: list[Step] = []
        inside = [
            stray
            for stray in self._strays
            if backward.start <= stray.start and stray.end <= backward.end and stray.thread != cutter.thread
        ]
        for scope in inside:
            steps += self._feed(cutter, scope._replace(thread=cutter.thread, snapshots=b""))
        kept = (stray for stray in self._strays if stray.start < backward.start)
        self._strays = deque(kept, maxlen=_STRAYS)
        return steps

    def _choose(self) -> list[Step]:
        """Chooses the threads anew; returns the steps of those that are followed from now on. The open step of a thread
        that is no longer followed waits: this thread may train, too."""
        wanted = self._wanted()
        early = [step for thread in wanted for step in self._early.pop(thread, ())]
        latest = max((step.end for step in early), default=0)
        self._followed = wanted
        return [step for step in early if latest - step.end < _RECENT_NS]

    def _wanted(self) -> dict[int, ThreadCutter]:
        cutters = self._cutters
        trains = {thread: cutter for thread, cutter in cutters.items() if cutter.has_backward}
        trains = trains or {thread: cutter for thread, cutter in cutters.items() if cutter.trains}
        if trains:
            return trains
        computes = {thread: cutter for thread, cutter in cutters.items() if cutter.has_runs}
        some = computes or {thread: cutter for thread, cutter in cutters.items() if cutter.is_clear}
        return dict(list(some.items())[:1])

    def _make_room(self) -> list[Step]:
        if len(self._cutters) < _THREADS:
            return []
        quiet = min(self._cutters.values(), key=lambda cutter: (cutter.thread in self._followed, cutter.last_end))
        del self._cutters[quiet.thread]
        self._early.pop(quiet.thread, None)
        followed = self._followed.pop(quiet.thread, None)
        return self._of(quiet, quiet.end()) if followed else []
