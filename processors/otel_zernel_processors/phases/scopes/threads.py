"""Cuts the intervals of one thread into steps, by its DataLoader if it has one, else by its passes."""

from collections.abc import Iterable

from otel_zernel_processors.phases.intake.intervals import RUNS, WORK, ThreadInterval
from otel_zernel_processors.phases.scopes.loads import LoadCutter
from otel_zernel_processors.phases.scopes.passes import PassCutter
from otel_zernel_processors.phases.scopes.steps import Step

_MOST = 64
"""A batch has at most this many backward passes and updates. If a thread trains on without a load, its loader has
only loaded the data in advance, or data for an evaluation."""
_LOADS = 2
"""So many batches in a row that were trained on show that a thread has a loader."""
_ALONE = 8
"""A thread that only loads is followed after this many loads: it may load for another thread, which trains. One whose
passes no longer show, since it replays a CUDA graph of them, is divided by its loads after as many."""
_WORKS = RUNS | WORK
"""The kinds that show that a thread computes."""


class ThreadCutter:
    """Cuts the intervals of one thread, fed in the order of their ends."""

    def __init__(self, thread: int, bridge_ns: int) -> None:
        """See `LoadCutter` and `PassCutter` for `bridge_ns`."""
        self.thread = thread
        self.last_end = 0
        """The end (ns) of its latest interval."""
        self.has_backward = self.has_update = self.has_runs = False
        self.was_full = False
        """Whether a step was cut because it had too many intervals."""
        self.loads = 0
        self._bridge_ns = bridge_ns
        self.by_loads: LoadCutter | None = None
        """Cuts by the DataLoader; None for a thread without one."""
        self._by_passes = PassCutter(bridge_ns)
        self._trained_loads = 0
        """The latest loads in a row whose batch was trained on, while it is cut by passes."""
        self._opened_by = ""
        """The kind of the first pass after the latest load, while it is cut by passes."""
        self._backwards = 0
        """Number of backward passes after that load."""
        self._loads_alone = 0
        """The latest loads in a row without a pass or an update between them, while it is cut by passes."""

    @property
    def is_clear(self) -> bool:
        """Whether it does more than to load a few batches."""
        return self.has_backward or self.has_update or self.has_runs or self.was_full or self.loads >= _ALONE

    @property
    def trains(self) -> bool:
        """Whether it trains. Autograd's own threads do not: they only run the hooks of a backward pass."""
        return self.has_backward or (self.has_update and (self.has_runs or self.loads > 0))

    @property
    def pending(self) -> int:
        """Number of intervals held."""
        return self.by_loads.pending if self.by_loads else self._by_passes.pending

    @property
    def begins(self) -> int | None:
        """When (ns) the first held step begins; None without one."""
        return self.by_loads.begins if self.by_loads else self._by_passes.begins

    def feed(self, interval: ThreadInterval) -> Iterable[Step]:
        """Adds an interval; returns the steps that it completes."""
        self.last_end = interval.end
        self._note(interval.kind)
        if self.by_loads is None:
            return self._feed_passes(interval)
        return [*self.by_loads.feed(interval), *self.leave_loader()]

    def leave_loader(self) -> Iterable[Step]:
        """Goes on by passes if the thread has trained long without a load; returns the steps that this completes."""
        loads = self.by_loads
        if loads is None or loads.backwards < _MOST or loads.count_updates() < _MOST:
            return ()
        self.by_loads, self._opened_by, self._backwards = None, "", 0
        self._trained_loads = self._loads_alone = 0
        start, steps, rest = loads.leave()
        self._by_passes = PassCutter(self._bridge_ns, start)
        for interval in rest:
            steps += self._by_passes.feed(interval)
        return steps

    def _note(self, kind: str) -> None:
        if kind == "backward":
            self.has_backward = True
        elif kind == "optimizer":
            self.has_update = True
        elif kind == "data_loading":
            self.loads += 1
        elif kind in ("forward", "inference"):
            self.has_runs = True

    def end(self) -> Iterable[Step]:
        """The remaining steps."""
        return (self.by_loads or self._by_passes).end()

    def cut(self) -> Iterable[Step]:
        """The steps held so far. The last one is unfinished."""
        return (self.by_loads or self._by_passes).cut()

    def _feed_passes(self, interval: ThreadInterval) -> Iterable[Step]:
        kind = interval.kind
        if kind != "data_loading":
            if kind in ("forward", "inference", "backward"):
                self._opened_by = self._opened_by or kind
                self._backwards += kind == "backward"
            if kind in _WORKS:
                self._loads_alone = 0
            return self._by_passes.feed(interval)
        if self._by_passes.is_skipping or (self._by_passes.has_cut and not self._has_loader()):
            return self._by_passes.feed(interval)
        steps = self._by_passes.end() if self._by_passes.has_cut else []
        self.by_loads, self._by_passes = LoadCutter(self._bridge_ns), PassCutter(self._bridge_ns)
        return [*steps, *self.by_loads.feed(interval)]

    def _has_loader(self) -> bool:
        """Whether, by this load, training has a loader, or shows nothing but its loads, like a CUDA graph."""
        self._loads_alone += 1
        trains = self._opened_by != "inference" and 1 <= self._backwards <= _MOST
        self._trained_loads = self._trained_loads + 1 if trains else 0
        self._opened_by, self._backwards = "", 0
        return self._trained_loads > _LOADS or self._loads_alone > _ALONE
